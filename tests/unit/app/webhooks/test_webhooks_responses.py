"""The excerpt of a response body."""

import pytest

from app.domain.delivery import Delivered, Rejected, Unreachable
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer

pytestmark = pytest.mark.anyio


def answer(body: bytes, status: int = 500) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def excerpt_of(sender: WebhookSender, script: bytes, *, lingers: bool = False) -> str:
    async with ScriptedPeer([[script]], lingers=lingers) as peer:
        outcome = await sender.send(peer.url, {}, b"{}")
    assert isinstance(outcome, Rejected)
    return outcome.response


async def test_the_body_of_a_rejection_is_kept(sender: WebhookSender) -> None:
    assert await excerpt_of(sender, answer(b"no such user: \xc3\xbcber")) == "no such user: über"
    assert await excerpt_of(sender, answer(b"")) == ""


async def test_no_more_than_the_first_kibibyte_is_kept(sender: WebhookSender) -> None:
    assert await excerpt_of(sender, answer(b"a" * 1_023 + b"b")) == "a" * 1_023 + "b"
    assert await excerpt_of(sender, answer(b"a" * 1_024 + b"b" * 40_000)) == "a" * 1_024


async def test_an_incomplete_character_is_dropped(sender: WebhookSender) -> None:
    assert await excerpt_of(sender, answer(b"a" * 1_023 + "ü".encode())) == "a" * 1_023


async def test_bytes_that_are_no_text_are_replaced(sender: WebhookSender) -> None:
    assert (
        await excerpt_of(sender, answer(b"\x1f\x8b\x00gzip"))
        == "\x1f\N{REPLACEMENT CHARACTER}\0gzip"
    )


async def test_a_chunked_body_is_joined(sender: WebhookSender) -> None:
    chunked = (
        b"HTTP/1.1 422 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nbad\r\n5\r\n JSON\r\n0\r\n\r\n"
    )
    assert await excerpt_of(sender, chunked) == "bad JSON"


async def test_the_received_part_of_an_incomplete_body_is_kept() -> None:
    endless = b"HTTP/1.1 500 X\r\ncontent-length: 1000000000\r\n\r\n" + b"y" * 5_000
    limits = SenderLimits(response_head_bytes=1_000, response_body_bytes=1_000)
    async with WebhookSender(Guard(allow_private=True), limits) as sender:
        assert await excerpt_of(sender, endless, lingers=True) == "y" * 1_024


async def test_each_response_has_its_own_excerpt(sender: WebhookSender) -> None:
    async with ScriptedPeer([[answer(b"no"), answer(b"yes", 200), answer(b"not now")]]) as peer:
        outcomes = [await sender.send(peer.url, {}, b"{}") for _ in range(3)]
        assert peer.connections == 1
    assert outcomes == [
        Rejected(500, None, "HTTP 500 Internal Server Error", "no"),
        Delivered(200),
        Rejected(500, None, "HTTP 500 Internal Server Error", "not now"),
    ]


async def test_the_body_of_any_response_is_kept_on_request(
    sender: WebhookSender,
) -> None:
    script = [answer(b"a" * 1_024 + b"b" * 9, 200), answer(b"no"), answer(b"", 204)]
    async with ScriptedPeer([script]) as peer:
        found = [await sender.send_and_read(peer.url, {}, b"{}") for _ in range(3)]
        assert peer.connections == 1
    assert [text for _, text in found] == ["a" * 1_024, "no", ""]
    assert [outcome for outcome, _ in found] == [
        Delivered(200),
        Rejected(500, None, "HTTP 500 Internal Server Error", "no"),
        Delivered(204),
    ]


async def test_without_a_response_there_is_no_excerpt(sender: WebhookSender) -> None:
    async with ScriptedPeer([[b"HTTP/1.1 200"]]) as peer:
        outcome, text = await sender.send_and_read(peer.url, {}, b"{}")
    assert isinstance(outcome, Unreachable)
    assert text is None
    outcome, text = await sender.send_and_read("ftp://example.com/", {}, b"{}")
    assert isinstance(outcome, Unreachable)
    assert text is None


async def test_an_informational_response_has_no_excerpt(sender: WebhookSender) -> None:
    assert await excerpt_of(sender, b"HTTP/1.1 103 X\r\n\r\n" + answer(b"no")) == "no"
