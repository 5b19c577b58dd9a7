"""Faults of receivers, and their outcomes for events and verifications."""

import asyncio
from email.utils import formatdate
from time import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.domain.delivery import AttemptOutcome, Delivered, Rejected, Unreachable
from app.domain.model import Validation
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from app.webhooks.verification import VerificationFailed, Verified, verify_receiver
from tests.support.processes.waiting import until_async
from tests.unit.app.webhooks.faulty_peer import Behaviour, FaultyPeer, drip, flood, hang, reset, say
from tests.unit.app.webhooks.stored_webhook import webhook_at

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\n"
LONG = OK + b"content-length: 1000000000\r\n\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
BAD_CHUNK = CHUNKED + b"4\r\nbody\r\nzz\r\n"
HUGE_LENGTH = OK + b"content-length: " + b"9" * 40 + b"\r\n\r\n"

# Sizes small enough to fill soon, and large enough that a drip does not fill them. The time is
# longer than a busy machine freezes a process.
LIMITS = SenderLimits(total_s=4.0, response_head_bytes=4096, response_body_bytes=32 * 1024)

SILENT = Unreachable("timeout: no response within 4 s")
HEAD_TOO_LONG = Unreachable("malformed response: head exceeds 4096 bytes")
CLOSED = Unreachable("reset: connection closed without a response")
RESET = Unreachable("reset: Connection reset by peer")

FAULTS: dict[str, tuple[Behaviour, AttemptOutcome]] = {
    "hangs": (hang(), SILENT),
    "drips its head": (drip(OK + b"x: ", b"y"), SILENT),
    "drips 1xx": (drip(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.1), SILENT),
    "drips its body": (drip(LONG, b"y"), Delivered(200)),
    "drips its chunks": (drip(CHUNKED, b"1\r\ny\r\n"), Delivered(200)),
    "endless header": (flood(OK + b"x: ", b"y" * 1000), HEAD_TOO_LONG),
    "endless headers": (flood(OK, b"x: y\r\n" * 200), HEAD_TOO_LONG),
    "endless status line": (flood(b"HTTP/1.1 200 ", b"O" * 1000), HEAD_TOO_LONG),
    "endless 1xx": (flood(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 40), HEAD_TOO_LONG),
    "endless body": (flood(LONG, b"y" * 5000), Delivered(200)),
    "endless chunks": (flood(CHUNKED, b"5\r\nyyyyy\r\n" * 500), Delivered(200)),
    "endless body to the end": (flood(OK + b"\r\n", b"y" * 5000), Delivered(200)),
    "endless chunk extension": (flood(CHUNKED, b"1;x=" + b"y" * 5000), Delivered(200)),
    "endless trailers": (flood(CHUNKED + b"0\r\n", b"x: y\r\n" * 900), Delivered(200)),
    "a chunk of no size": (say(BAD_CHUNK), Delivered(200)),
    "closes at once": (say(), CLOSED),
    "closes amid its head": (say(OK, b"x: y\r\n"), CLOSED),
    "closes amid its body": (say(LONG, b"y"), Delivered(200)),
    "resets at once": (reset(), RESET),
    "resets amid its head": (reset(OK, b"x: "), RESET),
}


@pytest.mark.parametrize(("behaviour", "outcome"), FAULTS.values(), ids=FAULTS.keys())
async def test_each_fault_has_its_outcome_and_closes_the_connection(
    behaviour: Behaviour, outcome: AttemptOutcome
) -> None:
    async with WebhookSender(Guard(allow_private=True), LIMITS) as sender:
        async with FaultyPeer(behaviour) as peer:
            assert await sender.send(peer.url, {"webhook-id": "evt_1"}, b"{}") == outcome
            await until_async(
                lambda: peer.connections == 1 and peer.is_left_alone,
                "the sender closes its one connection",
            )
        (pool,) = sender._pools.values()
        assert pool.is_unused


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>HTTP/0.9 has no head</html>\r\n\r\n",
        b"HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",  # the first frame of a server of HTTP/2
        b"SSH-2.0-OpenSSH_9.2\r\n",
        HUGE_LENGTH,
        OK + b"content-length: -1\r\n\r\n",
        OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
        OK + b"x y: z\r\n\r\n",
        OK + b"x: \0\r\n\r\n",
    ],
)
async def test_a_response_that_is_no_http_is_malformed(answer: bytes) -> None:
    async with (
        WebhookSender(Guard(allow_private=True)) as sender,
        FaultyPeer(say(answer)) as peer,
    ):
        outcome = await sender.send(peer.url, {"webhook-id": "evt_1"}, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("malformed response: ")


FRAGMENTS = [
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n", b"HTTP/1.0 503 X\r\n"),
    *(b"content-length: 3\r\n", b"content-length: 0\r\n", b"connection: close\r\n"),
    *(b"transfer-encoding: chunked\r\n", b"connection: upgrade\r\nupgrade: x\r\n"),
    *(b"retry-after: \xff\r\n", b"x:", b" y\r\n", b"\r\n", b"\n", b"\0", b"3\r\nabc\r\n"),
    *(b"0\r\n\r\n", b"fffffffffffffffff\r\n", b"abc", b'{"response_token": "x"}'),
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=9), max_size=9).map(b"".join))
@example(b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc")
@example(b"HTTP/1.1 200 OK\r\nconnection: upgrade\r\nupgrade: x\r\n\r\nabc")
def test_any_response_is_an_outcome(answer: bytes) -> None:
    async def exchange() -> tuple[AttemptOutcome, AttemptOutcome, Verified | VerificationFailed]:
        async with (
            WebhookSender(Guard(allow_private=True), LIMITS) as sender,
            FaultyPeer(say(answer)) as peer,
        ):
            event = await sender.send(peer.url, {"webhook-id": "evt_1"}, b"{}")
            asked, body = await sender.get(peer.url, {}, {}, body_bytes_max=20)
            assert body is None or len(body) <= 20
            return event, asked, await verify_receiver(sender, webhook_at(peer.url, Validation.CRC))

    event, asked, verdict = asyncio.run(exchange())
    assert isinstance(event, Delivered | Rejected | Unreachable)
    assert type(asked) is type(event)
    assert isinstance(verdict, VerificationFailed)


def answer_of(status: int, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "content-length: 0", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_has_seconds_or_a_date(status: int) -> None:
    moment = f"retry-after: {formatdate(time() + 3600, usegmt=True)}"
    async with WebhookSender(Guard(allow_private=True)) as sender:
        async with FaultyPeer(say(answer_of(status, "Retry-After: 120"))) as peer:
            seconds = await sender.send(peer.url, {}, b"{}")
        async with FaultyPeer(say(answer_of(status, moment))) as peer:
            date = await sender.send(peer.url, {}, b"{}")
    assert isinstance(seconds, Rejected)
    assert isinstance(date, Rejected)
    assert (seconds.status, seconds.retry_after_s) == (status, 120.0)
    assert date.retry_after_s is not None
    assert 3500 < date.retry_after_s <= 3600


@pytest.mark.parametrize(("behaviour", "outcome"), FAULTS.values(), ids=FAULTS.keys())
async def test_no_fault_answers_a_challenge(behaviour: Behaviour, outcome: AttemptOutcome) -> None:
    async with (
        WebhookSender(Guard(allow_private=True), LIMITS) as sender,
        FaultyPeer(behaviour) as peer,
    ):
        verdict = await verify_receiver(sender, webhook_at(peer.url, Validation.CRC))
    assert isinstance(verdict, VerificationFailed)
    reason = verdict.reason.removeprefix("crc: ")
    if isinstance(outcome, Unreachable):
        assert reason == outcome.reason
    else:
        assert reason == "the response did not end within 16384 bytes"


@pytest.mark.parametrize(
    ("behaviour", "outcome"),
    [FAULTS[name] for name in ("endless headers", "endless body", "closes at once")],
)
async def test_a_ping_succeeds_where_an_event_would(
    behaviour: Behaviour, outcome: AttemptOutcome
) -> None:
    async with (
        WebhookSender(Guard(allow_private=True), LIMITS) as sender,
        FaultyPeer(behaviour) as peer,
    ):
        verdict = await verify_receiver(sender, webhook_at(peer.url, Validation.PING))
    if isinstance(outcome, Unreachable):
        assert verdict == VerificationFailed(f"ping: {outcome.reason}")
    else:
        assert verdict == Verified()
