import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.responses import PlainTextResponse
from uvicorn import Config
from uvicorn.server import ServerState

from app.http import bounded_http
from app.http.bounded_http import HEAD_BYTES_MAX, BoundedHttp
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.anyio


GREETED_ONCE = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def connection() -> AsyncIterator[Streams]:
    """A connection to an application that greets everybody."""
    config = Config(PlainTextResponse("hello"), log_config=None, lifespan="off", ws="none")
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BoundedHttp(config, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        yield reader, writer
        writer.close()


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


async def test_idle_connections_are_evicted_first(
    monkeypatch: pytest.MonkeyPatch, connection: Streams
) -> None:
    monkeypatch.setattr(bounded_http, "CONNECTIONS_MAX", 2)
    address = connection[1].get_extra_info("peername")
    silent_reader, silent_writer = await asyncio.open_connection(*address)
    connection[1].write(GREETED_ONCE[:10])
    for reader, writer in [await asyncio.open_connection(*address) for _ in range(2)]:
        writer.write(GREETED_ONCE)
        assert b"200 OK" in await rest(reader)
        writer.close()
    # Each of the two took the place of one.
    assert await rest(silent_reader) == await rest(connection[0]) == b""
    silent_writer.close()


async def test_connections_above_the_second_limit_are_aborted(
    monkeypatch: pytest.MonkeyPatch, connection: Streams
) -> None:
    monkeypatch.setattr(bounded_http, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(bounded_http, "CONNECTIONS_REJECTED_MAX", 0)
    reader, writer = connection
    # Served, and not closed: no timeout runs.
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b"200 OK" in await answer(reader)
    address = writer.get_extra_info("peername")
    late_reader, late_writer = await asyncio.open_connection(*address)
    assert await rest(late_reader) == b""
    late_writer.close()
    # The first one continues, and frees its connection at its end.
    writer.write(GREETED_ONCE)
    assert b"200 OK" in await rest(reader)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(GREETED_ONCE)
    assert b"200 OK" in await rest(reader)
    writer.close()
