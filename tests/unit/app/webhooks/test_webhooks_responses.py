"""What is kept of the body of an answer: its first words, as text, whatever it is."""

import pytest

from app.domain.delivery import Delivered, Rejected, Unreachable
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer

pytestmark = pytest.mark.anyio


def answer(body: bytes, status: int = 500) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


async def kept(sender: WebhookSender, script: bytes, *, lingers: bool = False) -> str:
    async with ScriptedPeer([[script]], lingers=lingers) as peer:
        outcome = await sender.send(peer.url, {}, b"{}")
    assert isinstance(outcome, Rejected)
    return outcome.response


async def test_the_words_of_a_refusal_are_kept(sender: WebhookSender) -> None:
    assert await kept(sender, answer(b"no such user: \xc3\xbcber")) == "no such user: über"
    assert await kept(sender, answer(b"")) == ""


async def test_no_more_than_the_first_kibibyte_is_kept(sender: WebhookSender) -> None:
    assert await kept(sender, answer(b"a" * 1_023 + b"b")) == "a" * 1_023 + "b"
    assert await kept(sender, answer(b"a" * 1_024 + b"b" * 40_000)) == "a" * 1_024


async def test_a_letter_that_is_cut_is_left_out(sender: WebhookSender) -> None:
    assert await kept(sender, answer(b"a" * 1_023 + "ü".encode())) == "a" * 1_023


async def test_what_is_no_text_is_shown_as_such(sender: WebhookSender) -> None:
    assert await kept(sender, answer(b"\x1f\x8b\x00gzip")) == "\x1f\N{REPLACEMENT CHARACTER}\0gzip"


async def test_a_body_in_pieces_is_put_together(sender: WebhookSender) -> None:
    chunked = (
        b"HTTP/1.1 422 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nbad\r\n5\r\n JSON\r\n0\r\n\r\n"
    )
    assert await kept(sender, chunked) == "bad JSON"


async def test_what_had_come_of_a_body_that_is_cut_off_is_kept() -> None:
    endless = b"HTTP/1.1 500 X\r\ncontent-length: 1000000000\r\n\r\n" + b"y" * 5_000
    limits = SenderLimits(response_head_bytes=1_000, response_body_bytes=1_000)
    async with WebhookSender(Guard(allow_private=True), limits) as sender:
        assert await kept(sender, endless, lingers=True) == "y" * 1_024


async def test_the_words_of_one_answer_are_not_those_of_the_next(sender: WebhookSender) -> None:
    async with ScriptedPeer([[answer(b"no"), answer(b"yes", 200), answer(b"not now")]]) as peer:
        outcomes = [await sender.send(peer.url, {}, b"{}") for _ in range(3)]
        assert peer.connections == 1
    assert outcomes == [
        Rejected(500, None, "HTTP 500 Internal Server Error", "no"),
        Delivered(200),
        Rejected(500, None, "HTTP 500 Internal Server Error", "not now"),
    ]


async def test_the_words_of_any_answer_are_kept_where_they_are_asked_for(
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


async def test_where_no_answer_comes_there_are_no_words(sender: WebhookSender) -> None:
    async with ScriptedPeer([[b"HTTP/1.1 200"]]) as peer:
        outcome, text = await sender.send_and_read(peer.url, {}, b"{}")
    assert isinstance(outcome, Unreachable)
    assert text is None
    outcome, text = await sender.send_and_read("ftp://example.com/", {}, b"{}")
    assert isinstance(outcome, Unreachable)
    assert text is None


async def test_an_interim_answer_has_no_words(sender: WebhookSender) -> None:
    assert await kept(sender, b"HTTP/1.1 103 X\r\n\r\n" + answer(b"no")) == "no"
