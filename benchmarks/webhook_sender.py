"""Measures the webhook sender in POSTs/s, compared with a bare socket and with httpx.

A receiver in a separate process responds with 204. Every POST gets a new signature, as in a replay.
The baseline exchanges the same bytes on bare asyncio connections, without HTTP, so "of baseline" is
the share of the event loop's own rate. Each figure is the median of three passes over all cases,
so that other load on the machine affects all cases equally.

    python -m benchmarks.webhook_sender [SECONDS_PER_CASE]
"""

import asyncio
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import httpx

from app.domain.delivery import Delivered
from app.webhooks.guard import Guard
from app.webhooks.receiver import WebhookReceiver
from app.webhooks.request import encode_post, webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret

PASSES: Final = 3
SECRET: Final = new_secret()
EVENT: Final = b'{"id":"evt_0123456789","type":"follow","data":"' + b"x" * 951 + b'"}'
EVENTS_IN_BATCH: Final = 100
BATCH: Final = b"[" + b",".join([EVENT] * EVENTS_IN_BATCH) + b"]"
PONG: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
BASELINE: Final = "bare asyncio socket"

Post = Callable[[], Awaitable[None]]


class Row(NamedTuple):
    """One case: medians over the passes."""

    name: str
    in_flight: int
    events_per_post: int
    posts_per_s: float
    cpu_us_per_post: float
    of_baseline: float | None
    """Its share of the baseline's POSTs/s with as many in flight; None without such a baseline."""


class Case(NamedTuple):
    """One way to send, with a number of requests in flight."""

    name: str
    in_flight: int
    events_per_post: int
    run: Callable[["Peers", int, float], Coroutine[None, None, int]]
    """Returns the number of POSTs, given the number in flight and the seconds."""


class Peers(NamedTuple):
    """The addresses of the other process."""

    fast_url: str
    slow_url: str
    echo_port: int


def measure(seconds: float, passes: int = PASSES) -> list[Row]:
    """Measure every case for `seconds`, `passes` times."""
    samples: dict[Case, list[tuple[float, float]]] = {case: [] for case in CASES}
    with _peers() as peers:
        for _ in range(passes):
            for case in CASES:
                samples[case].append(_sample(case, peers, seconds))
    return _rows(samples)


def _sample(case: Case, peers: Peers, seconds: float) -> tuple[float, float]:
    """Return the POSTs/s and the CPU microseconds per POST of one pass."""
    start, cpu_start = time.perf_counter(), time.process_time()
    count = asyncio.run(case.run(peers, case.in_flight, seconds))
    elapsed_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    return count / elapsed_s, cpu_s * 1e6 / count


def _rows(samples: dict[Case, list[tuple[float, float]]]) -> list[Row]:
    rates = {case: statistics.median(rate for rate, _ in of) for case, of in samples.items()}
    floors = {case.in_flight: rate for case, rate in rates.items() if case.name == BASELINE}
    rows = []
    for case, of in samples.items():
        floor = floors.get(case.in_flight) if case.events_per_post == 1 else None
        cpu_us = statistics.median(cpu for _, cpu in of)
        share = None if floor is None else rates[case] / floor
        rows.append(
            Row(case.name, case.in_flight, case.events_per_post, rates[case], cpu_us, share)
        )
    return rows


async def repeat(post: Post, in_flight: int, seconds: float) -> int:
    """Call `post` from `in_flight` tasks for `seconds`; return the number of calls."""
    deadline = time.perf_counter() + seconds
    done = 0

    async def post_until_deadline() -> None:
        nonlocal done
        while time.perf_counter() < deadline:
            await post()
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(in_flight):
            tasks.create_task(post_until_deadline())
    return done


def signed_post(sender: WebhookSender, url: str, body: bytes) -> Post:
    """Return a function that signs and sends one event or batch."""

    async def post() -> None:
        headers = webhook_headers([SECRET], "evt_0123456789", int(time.time()), body, "rpl_1")
        outcome = await sender.send(url, headers, body)
        assert isinstance(outcome, Delivered), outcome

    return post


async def _single_events(peers: Peers, in_flight: int, seconds: float) -> int:
    async with WebhookSender(Guard(allow_private=True)) as sender:
        return await repeat(signed_post(sender, peers.fast_url, EVENT), in_flight, seconds)


async def _batches(peers: Peers, in_flight: int, seconds: float) -> int:
    async with WebhookSender(Guard(allow_private=True)) as sender:
        return await repeat(signed_post(sender, peers.fast_url, BATCH), in_flight, seconds)


async def _others_hang(peers: Peers, in_flight: int, seconds: float) -> int:
    """Send while 128 requests hang on another receiver: a full pool, and as many waiting."""
    async with WebhookSender(Guard(allow_private=True)) as sender:
        hang = signed_post(sender, peers.slow_url, EVENT)
        stuck = [asyncio.ensure_future(hang()) for _ in range(128)]
        count = await repeat(signed_post(sender, peers.fast_url, EVENT), in_flight, seconds)
        for attempt in stuck:
            attempt.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        return count


async def _httpx(peers: Peers, in_flight: int, seconds: float) -> int:
    limits = httpx.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    async with httpx.AsyncClient(limits=limits) as client:

        async def post() -> None:
            headers = webhook_headers([SECRET], "evt_0123456789", int(time.time()), EVENT, "rpl_1")
            response = await client.post(peers.fast_url, headers=headers, content=EVENT)
            assert response.is_success, response

        return await repeat(post, in_flight, seconds)


async def _ping_pong(peers: Peers, in_flight: int, seconds: float) -> int:
    return await ping(peers.echo_port, in_flight, seconds)


async def ping(port: int, in_flight: int, seconds: float) -> int:
    """Send the same request repeatedly, one per connection; return the number of POSTs."""
    loop = asyncio.get_running_loop()
    deadline = time.perf_counter() + seconds
    pings = [_Ping(deadline) for _ in range(in_flight)]
    for each in pings:
        await loop.create_connection(lambda each=each: each, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(each.is_over for each in pings))
    return sum(each.count for each in pings)


def _ping_bytes() -> bytes:
    headers = webhook_headers([SECRET], "evt_0123456789", 1_700_000_000, EVENT, "rpl_1")
    return encode_post(Guard().check_url("https://127-0-0-1.example/hook"), headers, EVENT)


PING: Final = _ping_bytes()


class _Ping(asyncio.Protocol):
    """Sends a ping for every pong until the deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.count = 0
        self.is_over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(PING)

    def data_received(self, _: bytes) -> None:
        self.count += 1
        if time.perf_counter() < self._deadline:
            self._transport.write(PING)
        else:
            self._transport.close()
            self.is_over.set_result(None)


class _Pong(asyncio.Protocol):
    """Responds to each complete ping by size, without parsing it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._unanswered_bytes = 0

    def data_received(self, data: bytes) -> None:
        self._unanswered_bytes += len(data)
        while self._unanswered_bytes >= len(PING):
            self._unanswered_bytes -= len(PING)
            self._transport.write(PONG)


CASES: Final[Sequence[Case]] = (
    Case(BASELINE, 1, 1, _ping_pong),
    Case(BASELINE, 16, 1, _ping_pong),
    Case(BASELINE, 64, 1, _ping_pong),
    Case("sender", 1, 1, _single_events),
    Case("sender", 16, 1, _single_events),
    Case("sender", 64, 1, _single_events),
    Case("sender, 128 others hang", 16, 1, _others_hang),
    Case("sender, batches", 1, EVENTS_IN_BATCH, _batches),
    Case("sender, batches", 16, EVENTS_IN_BATCH, _batches),
    Case("httpx", 1, 1, _httpx),
    Case("httpx", 16, 1, _httpx),
)


@contextmanager
def _peers() -> Iterator[Peers]:
    """Run the receivers in a separate process until the end of the block."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def _serve(control: Connection) -> None:
    asyncio.run(_serve_until_stopped(control))


async def _serve_until_stopped(control: Connection) -> None:
    loop = asyncio.get_running_loop()
    fast, slow = WebhookReceiver(), WebhookReceiver()
    slow.answer(204, delay_s=3600)
    await fast.start()
    await slow.start()
    echo = await loop.create_server(_Pong, "127.0.0.1", 0)
    control.send(Peers(f"{fast.url}/hook", f"{slow.url}/hook", echo.sockets[0].getsockname()[1]))
    await asyncio.to_thread(control.recv)
    echo.close()
    await fast.stop()
    await slow.stop()


def main() -> None:
    """Measure and print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"{'':34}{'in flight':>10}{'POSTs/s':>10}{'events/s':>11}", end="")
    print(f"{'CPU us/POST':>13}{'of baseline':>13}")
    for row in measure(seconds):
        share = "" if row.of_baseline is None else f"{row.of_baseline:.0%}"
        events_per_s = row.posts_per_s * row.events_per_post
        print(
            f"{row.name:34}{row.in_flight:>10}{row.posts_per_s:>10,.0f}{events_per_s:>11,.0f}"
            f"{row.cpu_us_per_post:>13.0f}{share:>13}"
        )


if __name__ == "__main__":
    main()
