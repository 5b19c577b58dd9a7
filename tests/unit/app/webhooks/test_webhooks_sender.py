"""The sender and real sockets: behaviour of receivers, and outcomes of attempts."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from app.domain.delivery import Delivered, Rejected, Unreachable
from app.webhooks.guard import Guard
from app.webhooks.http_connection import HttpConnection
from app.webhooks.limits import SenderLimits
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from tests.support.processes.waiting import until_async
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer
from tests.unit.app.webhooks.stored_webhook import HTTP_REFUSED

pytestmark = pytest.mark.anyio

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
HEADERS = {"webhook-id": "evt_1"}


def sender_with(**limits: Any) -> WebhookSender:
    return WebhookSender(Guard(allow_private=True), SenderLimits(**limits))


async def test_a_request_arrives_unchanged(
    sender: WebhookSender, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    body = bytes(range(256)) * 1024
    outcome = await sender.send(f"{receiver.url}/a?b=c", HEADERS | {"x-y": "z"}, body)
    assert outcome == Delivered(204)
    (webhook,) = received
    assert (webhook.path, webhook.event_id, webhook.body) == ("/a?b=c", "evt_1", body)
    assert webhook.headers["x-y"] == "z"
    assert webhook.headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_status_is_a_delivery(
    sender: WebhookSender, receiver: WebhookReceiver, status: int
) -> None:
    receiver.answer(status)
    assert await sender.send(receiver.url, HEADERS, b"{}") == Delivered(status)


@pytest.mark.parametrize("status", [300, 301, 307, 304, 400, 404, 410, 429, 500, 503, 599])
async def test_every_other_status_is_a_rejection(
    sender: WebhookSender, receiver: WebhookReceiver, status: int
) -> None:
    receiver.answer(status)
    outcome = await sender.send(receiver.url, HEADERS, b"{}")
    assert isinstance(outcome, Rejected)
    assert (outcome.status, outcome.retry_after_s) == (status, None)
    assert outcome.reason.startswith(f"HTTP {status}")


async def test_a_redirect_is_not_followed(
    sender: WebhookSender, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    redirect = f"HTTP/1.1 307 X\r\nlocation: {receiver.url}/\r\ncontent-length: 0\r\n\r\n"
    async with ScriptedPeer([[redirect.encode()]]) as peer:
        outcome = await sender.send(peer.url, HEADERS, b"{}")
    assert outcome == Rejected(307, None, "HTTP 307 Temporary Redirect; redirects are not followed")
    assert not received


async def test_retry_after_is_part_of_the_outcome(
    sender: WebhookSender, receiver: WebhookReceiver
) -> None:
    receiver.answer(503, retry_after="17")
    outcome = await sender.send(receiver.url, HEADERS, b"{}")
    assert isinstance(outcome, Rejected)
    assert outcome.retry_after_s == 17.0


async def test_a_receiver_is_unreachable_while_it_is_down(
    sender: WebhookSender, receiver: WebhookReceiver
) -> None:
    await receiver.stop()
    down = await sender.send(receiver.url, HEADERS, b"{}")
    await receiver.start()
    assert down == Unreachable("connect: Connection refused")
    assert await sender.send(receiver.url, HEADERS, b"{}") == Delivered(204)


async def test_a_name_that_does_not_resolve_is_unreachable(sender: WebhookSender) -> None:
    outcome = await sender.send("https://no-such-name.invalid/", HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("dns: ")


async def test_a_url_that_the_guard_refuses_is_not_sent() -> None:
    async with WebhookSender(Guard()) as sender:
        outcome = await sender.send("http://127.0.0.1:1/", HEADERS, b"{}")
    assert outcome == Unreachable(f"not sent: {HTTP_REFUSED}")


async def test_a_header_that_would_inject_another_is_not_sent(
    sender: WebhookSender, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    outcome = await sender.send(receiver.url, {"webhook-id": "evt\r\nx: y"}, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("not sent: header webhook-id is")
    assert not received


async def test_a_connection_is_reused(sender: WebhookSender) -> None:
    async with ScriptedPeer([[NO_CONTENT] * 5]) as peer:
        for _ in range(5):
            assert await sender.send(peer.url, HEADERS, b"{}") == Delivered(204)
        assert peer.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 X\r\nconnection: close\r\n\r\n",
        b"HTTP/1.0 200 X\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 X\r\n\r\nuntil the end",
        b"HTTP/1.1 204 X\r\n\r\nHTTP/1.1 204 X\r\n\r\n",
        b"HTTP/1.1 204 X\r\n\r\nnoise",
    ],
    ids=["close", "http-1.0", "until the end", "two answers", "noise"],
)
async def test_a_closed_or_ambiguous_connection_is_not_reused(
    sender: WebhookSender, answer: bytes
) -> None:
    async with ScriptedPeer([[answer]]) as peer:
        for count in (1, 2):
            assert isinstance(await sender.send(peer.url, HEADERS, b"{}"), Delivered)
            assert peer.connections == count


async def test_an_unrequested_response_is_ignored(sender: WebhookSender) -> None:
    async with ScriptedPeer(
        [[NO_CONTENT], [b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"]]
    ) as peer:
        await sender.send(peer.url, HEADERS, b"{}")
        (pool,) = sender._pools.values()
        (connection,) = pool._idle
        connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        outcome = await sender.send(peer.url, HEADERS, b"{}")
    assert isinstance(outcome, Rejected)
    assert peer.connections == 2


async def test_a_stale_connection_is_replaced_within_the_attempt(
    sender: WebhookSender,
) -> None:
    async with ScriptedPeer([[NO_CONTENT, None], [NO_CONTENT]]) as peer:
        outcomes = [await sender.send(peer.url, HEADERS, b"{}") for _ in range(2)]
        assert outcomes == [Delivered(204)] * 2
        assert (peer.connections, len(peer.requests)) == (2, 3)


async def test_a_stale_connection_is_replaced_only_once(sender: WebhookSender) -> None:
    async with ScriptedPeer([[NO_CONTENT, None], [None]]) as peer:
        await sender.send(peer.url, HEADERS, b"{}")
        outcome = await sender.send(peer.url, HEADERS, b"{}")
        assert isinstance(outcome, Unreachable)
        assert outcome.reason.startswith("reset: ")
        assert (peer.connections, len(peer.requests)) == (2, 3)


async def test_a_connection_with_a_partial_response_is_not_replaced(
    sender: WebhookSender,
) -> None:
    async with ScriptedPeer([[NO_CONTENT, b"HTTP/1.1 20"], [NO_CONTENT]]) as peer:
        await sender.send(peer.url, HEADERS, b"{}")
        assert isinstance(await sender.send(peer.url, HEADERS, b"{}"), Unreachable)
        assert peer.connections == 1


async def test_a_new_connection_closed_without_a_response_is_one_attempt(
    sender: WebhookSender,
) -> None:
    async with ScriptedPeer([[None]]) as peer:
        outcome = await sender.send(peer.url, HEADERS, b"{}")
        assert isinstance(outcome, Unreachable)
        assert peer.connections == 1


HEAD = b"HTTP/1.1 200 OK\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\n"


@pytest.mark.parametrize("end", range(len(HEAD) + 5))
async def test_a_truncated_response_counts_if_its_head_is_complete(
    sender: WebhookSender, end: int
) -> None:
    async with ScriptedPeer([[(HEAD + b"body")[:end]]]) as peer:
        outcome = await sender.send(peer.url, HEADERS, b"{}")
    if end >= len(HEAD):
        assert outcome == Delivered(200)
    else:
        assert isinstance(outcome, Unreachable)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + NO_CONTENT,
        b"HTTP/1.1 103 Early Hints\r\nretry-after: 9\r\n\r\nHTTP/1.1 103 X\r\n\r\n" + NO_CONTENT,
        b"HTTP/1.1 204 X\r\nretry-after: soon\r\n\r\n",
        # As Apache's httpd offers HTTP/2.
        b"HTTP/1.1 204 X\r\nupgrade: h2,h2c\r\nconnection: Upgrade, Keep-Alive\r\n\r\n",
    ],
    ids=["100", "103 twice", "a header of no use", "an upgrade that is offered"],
)
async def test_informational_responses_are_skipped(sender: WebhookSender, answer: bytes) -> None:
    async with ScriptedPeer([[answer, answer]]) as peer:
        for _ in range(2):
            assert await sender.send(peer.url, HEADERS, b"{}") == Delivered(204)
        assert peer.connections == 1


async def test_a_chunked_response_with_trailers_is_read_to_its_end(sender: WebhookSender) -> None:
    chunked = (
        b"HTTP/1.1 503 X\r\ntransfer-encoding: chunked\r\n\r\n"
        b"4\r\nbody\r\n0\r\nretry-after: 5\r\n\r\n"
    )
    async with ScriptedPeer([[chunked, NO_CONTENT]]) as peer:
        outcome = await sender.send(peer.url, HEADERS, b"{}")
        assert outcome == Rejected(503, None, "HTTP 503 Service Unavailable", "body")
        assert await sender.send(peer.url, HEADERS, b"{}") == Delivered(204)
        assert peer.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"no http at all\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
    ids=["noise", "status", "upgrade", "two lengths"],
)
async def test_a_malformed_response_is_unreachable(sender: WebhookSender, answer: bytes) -> None:
    async with ScriptedPeer([[answer]]) as peer:
        outcome = await sender.send(peer.url, HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("malformed response: ")


async def test_an_endless_head_is_aborted() -> None:
    endless = b"HTTP/1.1 200 OK\r\nx: " + b"y" * 5000
    async with (
        sender_with(response_head_bytes=1000) as sender,
        ScriptedPeer([[endless]], lingers=True) as peer,
    ):
        outcome = await sender.send(peer.url, HEADERS, b"{}")
        assert outcome == Unreachable("malformed response: head exceeds 1000 bytes")
        await peer.closed_by_sender.wait()


async def test_an_endless_body_is_aborted_and_its_status_counts() -> None:
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n" + b"y" * 5000
    async with (
        sender_with(response_head_bytes=1000, response_body_bytes=1000) as sender,
        ScriptedPeer([[endless]], lingers=True) as peer,
    ):
        assert await sender.send(peer.url, HEADERS, b"{}") == Delivered(200)
        await peer.closed_by_sender.wait()


async def test_a_receiver_that_does_not_respond_times_out() -> None:
    async with sender_with(total_s=0.05) as sender, ScriptedPeer([[b""]], lingers=True) as peer:
        outcome = await peer.reached_by(lambda: sender.send(peer.url, HEADERS, b"{}"))
        assert outcome == Unreachable("timeout: no response within 0.05 s")
        await peer.closed_by_sender.wait()


async def test_a_slow_body_times_out_and_its_status_counts() -> None:
    drip = b"HTTP/1.1 410 Gone\r\ncontent-length: 10\r\n\r\n1"
    # The time is longer than a busy machine freezes a process.
    async with sender_with(total_s=4.0) as sender, ScriptedPeer([[drip]], lingers=True) as peer:
        outcome = await sender.send(peer.url, HEADERS, b"{}")
        assert outcome == Rejected(410, None, "HTTP 410 Gone", "1")
        await peer.closed_by_sender.wait()


async def test_a_response_before_the_end_of_the_request_counts() -> None:
    # More than any socket buffer holds, and the receiver does not read it.
    body = bytes(32 * 2**20)

    async def answer_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 X\r\ncontent-length: 0\r\n\r\n")
        await left.wait()
        writer.close()

    left = asyncio.Event()
    server = await asyncio.start_server(answer_at_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with sender_with() as sender:
        outcome = await sender.send(f"http://127.0.0.1:{port}/", HEADERS, body)
        assert isinstance(outcome, Rejected)
        assert outcome.status == 413
        (pool,) = sender._pools.values()
        assert pool.is_unused, "what is left of the request must not lead the next one"
    left.set()
    server.close()
    await server.wait_closed()


async def test_a_cancelled_attempt_leaves_no_response_to_the_next() -> None:
    async with (
        sender_with(connections_per_target=1) as sender,
        ScriptedPeer([[b""], [NO_CONTENT]], lingers=True) as peer,
    ):
        attempt = asyncio.create_task(sender.send(peer.url, HEADERS, b"{}"))
        await until_async(lambda: peer.requests, "a request arrives")
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await peer.closed_by_sender.wait()
        assert await sender.send(peer.url, HEADERS, b"{}") == Delivered(204)
        assert peer.connections == 2


async def test_connections_to_one_target_are_limited() -> None:
    async with (
        sender_with(connections_per_target=3) as sender,
        ScriptedPeer([[NO_CONTENT] * 40], lingers=True) as peer,
    ):
        outcomes = await asyncio.gather(
            *(sender.send(f"{peer.url}/hook", HEADERS, b"{}") for _ in range(40))
        )
        assert outcomes == [Delivered(204)] * 40
        assert peer.connections == 3


async def test_a_slow_receiver_does_not_block_others(receiver: WebhookReceiver) -> None:
    async with (
        sender_with(connections_per_target=2) as sender,
        ScriptedPeer([[b""]], lingers=True) as peer,
    ):
        stuck = [asyncio.create_task(sender.send(peer.url, HEADERS, b"{}")) for _ in range(20)]
        await until_async(lambda: peer.connections == 2, "two connections are made")
        fast = [await sender.send(receiver.url, HEADERS, b"{}") for _ in range(50)]
        assert fast == [Delivered(204)] * 50
        assert not any(attempt.done() for attempt in stuck)
        assert peer.connections == 2
        for attempt in stuck:
            attempt.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)


@pytest.mark.parametrize(
    ("limit", "urls", "in_flight", "connections"), [(256, 33, 8, 33 * 8), (3, 5, 4, 2 + 5)]
)
async def test_urls_that_hang_do_not_delay_others_on_their_host(
    limit: int, urls: int, in_flight: int, connections: int
) -> None:
    script = [[b""]] * connections + [[NO_CONTENT] * 8]
    async with (
        sender_with(connections_per_target=limit) as sender,
        ScriptedPeer(script, lingers=True) as peer,
    ):
        stuck = [
            asyncio.create_task(sender.send(f"{peer.url}/{number % urls}", HEADERS, b"{}"))
            for number in range(urls * in_flight)
        ]
        await until_async(lambda: peer.connections == connections, "the connections are made")
        other = [sender.send(f"{peer.url}/other", HEADERS, b"{}") for _ in range(8)]
        assert await asyncio.gather(*other) == [Delivered(204)] * 8
        assert not any(attempt.done() for attempt in stuck)
        for attempt in stuck:
            attempt.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)


async def test_idle_connections_are_closed_after_a_while() -> None:
    async with (
        sender_with(idle_s=0.02) as sender,
        ScriptedPeer([[NO_CONTENT]], lingers=True) as peer,
    ):
        await sender.send(peer.url, HEADERS, b"{}")
        await peer.closed_by_sender.wait()
        (pool,) = sender._pools.values()
        assert pool.is_unused


async def test_closing_the_sender_closes_idle_connections() -> None:
    async with ScriptedPeer([[NO_CONTENT]], lingers=True) as peer:
        async with sender_with() as sender:
            await sender.send(peer.url, HEADERS, b"{}")
        await peer.closed_by_sender.wait()


async def test_pools_without_connections_are_deleted(
    sender: WebhookSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webhooks.sender._POOLS_KEPT", 3)
    for port in range(1, 9):
        await sender.send(f"http://127.0.0.1:{port}/", HEADERS, b"{}")
    assert len(sender._pools) <= 3


class TestResolving:
    """Tests with given DNS addresses; everything else is real."""

    @pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254"])
    async def test_a_name_that_resolves_to_a_private_address_is_refused(
        self, resolve: Callable[..., None], address: str
    ) -> None:
        resolve("rebound.example", address)
        async with WebhookSender(Guard()) as sender:
            outcome = await sender.send("https://rebound.example/", HEADERS, b"{}")
        assert isinstance(outcome, Unreachable)
        assert outcome.reason.startswith("address refused: rebound.example is ")
        assert address not in outcome.reason, "who owns a webhook must not map our network"

    async def test_the_sender_connects_to_the_checked_address(
        self, resolve: Callable[..., None], sender: WebhookSender, receiver: WebhookReceiver
    ) -> None:
        answers = iter(["127.0.0.1", "169.254.169.254"])
        resolve("rebound.example", by=lambda: [next(answers)])
        url = f"http://rebound.example:{receiver.port}/"
        assert await sender.send(url, HEADERS, b"{}") == Delivered(204)
        await receiver.stop()
        outcome = await sender.send(url, HEADERS, b"{}")
        assert isinstance(outcome, Unreachable)
        assert outcome.reason.startswith("address refused: ")

    async def test_refused_and_unreachable_addresses_are_skipped(
        self, resolve: Callable[..., None], sender: WebhookSender, receiver: WebhookReceiver
    ) -> None:
        resolve("many.example", "169.254.169.254", "127.0.0.2", "127.0.0.1")
        outcome = await sender.send(f"http://many.example:{receiver.port}/", HEADERS, b"{}")
        assert outcome == Delivered(204)

    async def test_the_receiver_gets_the_host_name(
        self,
        resolve: Callable[..., None],
        sender: WebhookSender,
        receiver: WebhookReceiver,
        received: list[ReceivedWebhook],
    ) -> None:
        resolve("hooks.example", "127.0.0.1")
        await sender.send(f"http://hooks.example:{receiver.port}/", HEADERS, b"{}")
        assert received[0].headers["host"] == f"hooks.example:{receiver.port}"

    async def test_a_hanging_name_server_times_out_and_is_asked_once(
        self, resolve: Callable[..., None]
    ) -> None:
        asked: list[str] = []
        is_over = threading.Event()

        def hang() -> list[str]:
            asked.append("hanging.example")
            is_over.wait()
            return ["127.0.0.1"]

        resolve("hanging.example", by=hang)
        async with sender_with(connect_s=0.05) as sender:
            outcomes = await asyncio.gather(
                *(sender.send("http://hanging.example/", HEADERS, b"{}") for _ in range(30))
            )
            await until_async(lambda: asked, "the lookup has begun")
            is_over.set()
        assert outcomes == [Unreachable("timeout: no connection within 0.05 s")] * 30
        assert asked == ["hanging.example"]


async def test_a_closed_connection_is_freed_without_a_collection() -> None:
    def connections() -> int:
        return sum(isinstance(each, HttpConnection) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = connections()
        async with sender_with(idle_s=0.02) as sender, ScriptedPeer([[NO_CONTENT]]) as peer:
            assert await sender.send(peer.url, HEADERS, b"{}") == Delivered(204)
            await until_async(lambda: connections() <= before, "the connection is freed")
    finally:
        gc.enable()
