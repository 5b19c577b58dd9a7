import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from logbroker import bounded_http
from logbroker.bounded_http import HEAD_BYTES_MAX, BoundedHttp
from tests.support.processes.waiting import DEADLINE_S, until_async

pytestmark = pytest.mark.anyio


GREETED_ONCE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n"
LARGE_ONCE = b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
ENDLESS = b"GET /endless HTTP/1.1\r\nhost: x\r\n\r\n"

LARGE_BYTES = 24 * 2**20
"""More than the kernel buffers for both sides of a connection."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def respond(scope: Scope, receive: Receive, send: Send) -> None:
    """Greet; `/large` gets a body that fills all buffers, `/endless` no answer."""
    if scope["path"] == "/endless":
        await asyncio.Event().wait()
    content = bytes(LARGE_BYTES) if scope["path"] == "/large" else b"hello"
    await PlainTextResponse(content)(scope, receive, send)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def connections() -> set[BoundedHttp]:
    """The server's side of all open connections."""
    return set()


@pytest.fixture
async def connection(connections: set[BoundedHttp]) -> AsyncIterator[Streams]:
    """A connection to an application that greets everybody."""
    config = Config(respond, log_config=None, lifespan="off", ws="none", limit_concurrency=4)
    state = ServerState()
    state.connections = connections  # type: ignore[assignment]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttp(config, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()
        for task in state.tasks:
            task.cancel()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other side ends the connection."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            # It ended while bytes were on their way to it, which takes the answer along.
            return b""


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        return await reader.readuntil(b"hello")


@pytest.mark.parametrize("opening", [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\n"])
async def test_a_head_without_an_end_is_rejected(connection: Streams, opening: bytes) -> None:
    reader, writer = connection
    line = b"x: x\r\n" if opening.endswith(b"\r\n") else b"xxxxxx"
    writer.write(opening)
    for _ in range(3):
        # More than one read of the socket returns.
        writer.write(line * (HEAD_BYTES_MAX // 2))
    assert (await rest(reader))[:13] in (b"HTTP/1.1 400 ", b"")


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nhost: x\r\n"])
async def test_a_slow_head_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, connection: Streams, sent: bytes
) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_S", 0.05)
    reader, writer = connection
    request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    # The first request had the old timeout, the second has the new one.
    writer.write(request)
    assert b"200 OK" in await answer(reader)
    writer.write(sent or b"\r\n")
    assert await rest(reader) == b""


async def test_pipelined_requests_have_separate_limits(connection: Streams) -> None:
    reader, writer = connection
    header = b"x: " + b"x" * (HEAD_BYTES_MAX - 100) + b"\r\n"
    for _ in range(3):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n" + header + b"\r\n")
        assert b"200 OK" in await answer(reader)


async def test_a_body_may_be_larger_than_any_head(connection: Streams) -> None:
    reader, writer = connection
    body = b"x" * 10 * HEAD_BYTES_MAX
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    writer.write(head + body + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    for _ in range(2):
        assert b"200 OK" in await answer(reader)


async def further(connection: Streams) -> Streams:
    """Another connection to the same server."""
    return await asyncio.open_connection(*connection[1].get_extra_info("peername"))


async def is_greeted(connection: Streams) -> bool:
    """Whether a new connection to the same server is served."""
    reader, writer = await further(connection)
    writer.write(GREETED_ONCE)
    received = await rest(reader)
    writer.close()
    return b"200 OK" in received


async def test_idle_connections_are_evicted_first(
    monkeypatch: pytest.MonkeyPatch, connection: Streams
) -> None:
    monkeypatch.setattr(BoundedHttp, "connections_max", 2)
    silent_reader, silent_writer = await further(connection)
    connection[1].write(GREETED_ONCE[:10])
    for reader, writer in [await further(connection) for _ in range(2)]:
        writer.write(GREETED_ONCE)
        assert b"200 OK" in await rest(reader)
        writer.close()
    # Each of the two took the place of one.
    assert await rest(silent_reader) == await rest(connection[0]) == b""
    silent_writer.close()


async def test_a_connection_without_a_next_request_is_evicted(
    monkeypatch: pytest.MonkeyPatch, connection: Streams
) -> None:
    monkeypatch.setattr(BoundedHttp, "connections_max", 1)
    connection[1].write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"200 OK" in await answer(connection[0])
    assert await is_greeted(connection)
    assert await rest(connection[0]) == b""


async def test_connections_above_the_second_limit_are_aborted(
    monkeypatch: pytest.MonkeyPatch, connection: Streams, connections: set[BoundedHttp]
) -> None:
    monkeypatch.setattr(BoundedHttp, "connections_max", 1)
    monkeypatch.setattr(BoundedHttp, "connections_rejected_max", 0)
    _, writer = connection
    # A request that is being served: its connection waits for the server, not for the client.
    writer.write(ENDLESS)
    await until_async(
        lambda: any(each.cycle is not None for each in connections), "the request is served"
    )
    assert not await is_greeted(connection)
    writer.transport.abort()
    await until_async(lambda: not connections, "the first connection ended")
    assert await is_greeted(connection)


@pytest.mark.parametrize("request_text", [LARGE, LARGE_ONCE])
async def test_a_client_that_reads_nothing_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
    connection: Streams,
    connections: set[BoundedHttp],
    request_text: bytes,
) -> None:
    monkeypatch.setattr(bounded_http, "UNREAD_S", 0.05)
    connection[1].write(request_text)
    await until_async(lambda: not connections, "the server gave the connection up")
    assert len(await rest(connection[0])) < LARGE_BYTES


async def test_clients_that_read_nothing_do_not_take_every_connection(
    monkeypatch: pytest.MonkeyPatch, connection: Streams, connections: set[BoundedHttp]
) -> None:
    monkeypatch.setattr(BoundedHttp, "connections_max", 3)
    hoarded = [connection, await further(connection), await further(connection)]
    for _, writer in hoarded:
        # Some responses keep their connections open, others close them: both wait for readers.
        writer.write(LARGE if writer is connection[1] else LARGE_ONCE)
    await until_async(
        lambda: all(each.cycle and each.cycle.response_complete for each in connections),
        "all responses wait for their readers",
    )
    for _ in range(2):
        assert await is_greeted(connection)
    for _, writer in hoarded[1:]:
        writer.close()


async def test_a_client_that_reads_slowly_keeps_its_connection(
    connection: Streams, connections: set[BoundedHttp]
) -> None:
    reader, writer = connection
    writer.write(LARGE)
    await reader.readexactly(1)
    (served,) = connections
    transport = served.transport
    await until_async(lambda: transport.get_write_buffer_size() > 0, "a part of the response waits")
    before = transport.get_write_buffer_size()
    while transport.get_write_buffer_size() == before:
        await reader.read(65_536)
    served.abort_without_reader()
    assert not transport.is_closing()
    # Nothing was read since the check before.
    served.abort_without_reader()
    assert transport.is_closing()
