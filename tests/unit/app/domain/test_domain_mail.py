"""Mail servers, addresses, and the text of mails."""

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.account_notices import AccountNotice, NoticeEndpoint, NoticeType
from app.domain.mail import (
    MailServer,
    MailTls,
    as_endpoint_url,
    is_mail_address,
    mail_address,
    sender_address,
)
from app.domain.mail_confirmations import code_digest
from app.domain.model import WebhookStatus
from app.domain.notice_mails import (
    NAME_CHARS_MAX,
    Mail,
    confirmation_mail,
    notice_mail,
)
from app.domain.notice_mails import (
    test_mail as mail_of_a_test,
)
from app.mail.message import message_bytes

ADDRESS: Final = "ops@example.com"
ENDPOINT: Final = NoticeEndpoint(
    id="ne_1",
    account_id="acc_1",
    url=f"mailto:{ADDRESS}",
    description="<b>not shown</b>",
    event_types=(),
    status=WebhookStatus.ENABLED,
    status_reason=None,
    secret="whsec_hidden",
    previous_secret=None,
    previous_secret_until_ms=None,
    created_ms=0,
    validated_ms=0,
    delivered_ms=None,
    failed_ms=None,
    failure=None,
)
TIME: Final = "2026-11-21T08:10:09.000Z"


def mail_of(notice_type: NoticeType, name: str = "payments", **data: object) -> Mail:
    facts = {"accountId": "acc_1", "webhookId": "wh_1", **data}
    document = {"type": str(notice_type), "timestamp": TIME, "data": facts}
    body = json.dumps(document).encode()
    return notice_mail(AccountNotice("ntc_1", ENDPOINT, body, 1, name), ADDRESS)


def test_a_subject_says_what_happened_to_which_webhook() -> None:
    mail = mail_of(NoticeType.WEBHOOK_FAILING, failingSince=TIME)
    assert mail.subject == "Webhook payments is failing"
    assert (mail.id, mail.address, mail.at_ms) == ("ntc_1", ADDRESS, 1_795_248_609_000)
    assert mail_of(NoticeType.WEBHOOK_DISABLED, name="").subject == "Webhook wh_1 was disabled"


def test_the_text_has_the_facts_and_ends_with_the_notice() -> None:
    counts = {"delivered": 16_310, "duplicates": 12, "failed": 0}
    mail = mail_of(
        NoticeType.REPLAY_COMPLETED, replayId="rpl_1", counts=counts, error=None, unknown="later"
    )
    text, _, document = mail.text.partition("\n{")
    assert text.startswith("A replay of webhook payments is completed.\n\nThe replay reached")
    lines = text.splitlines()
    for line in (
        "Time:       2026-11-21T08:10:09.000Z",
        "Webhook id: wh_1",
        "Replay:     rpl_1",
        "Events:     16310 delivered, 12 duplicates, 0 failed",
        "unknown:    later",
    ):
        assert line in lines
    assert "Error" not in text
    assert "notice endpoint ne_1 of account acc_1" in text
    assert json.loads("{" + document)["data"]["counts"] == counts
    assert "whsec_" not in mail.text


@pytest.mark.parametrize("notice_type", list(NoticeType))
def test_every_notice_has_a_mail(notice_type: NoticeType) -> None:
    assert "payments" in mail_of(notice_type).subject


@given(name=st.text(), reason=st.text())
def test_no_text_of_a_webhook_or_receiver_adds_a_header(name: str, reason: str) -> None:
    mail = mail_of(NoticeType.WEBHOOK_DISABLED, name, reason=reason)
    assert len(mail.subject) <= NAME_CHARS_MAX + len("Webhook  was disabled")
    head, _, _ = message_bytes(mail, "rewind@example.com").partition(b"\r\n\r\n")
    names = [line.partition(b":")[0] for line in head.split(b"\r\n") if line[:1] not in b" \t"]
    assert names == [
        *(b"From", b"To", b"Subject", b"Date", b"Message-ID", b"Auto-Submitted"),
        *(b"Content-Type", b"Content-Transfer-Encoding", b"MIME-Version"),
    ]


def test_attempts_are_the_same_message() -> None:
    first, second = (
        message_bytes(mail_of(NoticeType.WEBHOOK_FAILING, "Zahlungen für Köln"), "r@example.com")
        for _ in range(2)
    )
    assert first == second
    assert b"Date: Sat, 21 Nov 2026 08:10:09 +0000\r\n" in first
    assert b"Message-ID: <ntc_1@example.com>\r\n" in first


def test_a_message_id_is_not_folded() -> None:
    sender = f"r@{'a' * 60}.{'b' * 60}.example"
    message = message_bytes(mail_of(NoticeType.WEBHOOK_FAILING), sender)
    assert f"\r\nMessage-ID: <ntc_1@{sender[2:]}>\r\n".encode() in message


def test_a_confirmation_has_the_code_and_nothing_that_the_caller_chose() -> None:
    page = "https://rewind.example.com/console/notice-endpoints/ne_1"
    mail = confirmation_mail("ntm_1", ADDRESS, "acc_1", "ne_1", "AAAA-BBBB-CCCC", page, 0)
    assert "enter this code within a day: AAAA-BBBB-CCCC" in mail.text
    assert f"Console: {page}\n" in mail.text
    without = confirmation_mail("ntm_1", ADDRESS, "acc_1", "ne_1", "AAAA-BBBB-CCCC", "", 0)
    assert "Console" not in without.text
    assert "rewind notice-endpoints confirm ne_1 AAAA-BBBB-CCCC" in without.text
    assert "ne_1" in mail_of_a_test("test_1", ADDRESS, "acc_1", "ne_1", 0).text


def test_case_spaces_and_hyphens_of_a_code_do_not_matter() -> None:
    assert code_digest(" aaaa bbbb-CCCC") == code_digest("AAAA-BBBB-CCCC")
    assert code_digest("AAAA-BBBB-CCCD") != code_digest("AAAA-BBBB-CCCC")
    assert code_digest("\udc80")


@pytest.mark.parametrize(
    "address",
    ["ops@example.com", "o.p-s+rewind@mail.example.co.uk", "o'hara@xn--bcher-kva.example"],
)
def test_addresses_of_domains_are_accepted(address: str) -> None:
    assert is_mail_address(address)
    assert mail_address(as_endpoint_url(address)) == address


@pytest.mark.parametrize(
    "address",
    [
        *("", "ops", "ops@", "@example.com", "ops@localhost", "ops@127.0.0.1", "ops@[127.0.0.1]"),
        *("a@example.com,b@example.com", "a@b@example.com", "a b@example.com", '"a"@example.com'),
        *("ops@example.com\r\nBcc: x@example.com", "ops@example.com\n", "ops@example.com?cc=x"),
        *("ops@example..com", "ops@-a.com", ".ops@example.com", "ops.@example.com", "o..s@a.com"),
        *("<ops@example.com>", "Ops <ops@example.com>", "öps@example.com", "ops@bücher.example"),
        *("%6Fps@example.com", "-ops@example.com", "a" * 65 + "@example.com"),
        "a@" + ".".join(["b" * 60] * 5),
    ],
)
def test_everything_else_is_refused(address: str) -> None:
    assert not is_mail_address(address)


def test_only_mailto_urls_are_addresses() -> None:
    assert mail_address("https://ops@example.com/") is None
    assert as_endpoint_url("https://ops@example.com/") == "https://ops@example.com/"
    assert as_endpoint_url("mailto:ops@example.com") == "mailto:ops@example.com"
    assert as_endpoint_url("example.com") == "example.com"


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://h.example:587", MailServer("h.example", 587, MailTls.STARTTLS)),
        ("smtps://h.example:465/", MailServer("h.example", 465, MailTls.IMPLICIT)),
        ("smtp://127.0.0.1:25?tls=none", MailServer("127.0.0.1", 25, MailTls.NONE)),
        (
            "smtp://me%40example.com:s%3A%2Fcret@[::1]:587",
            MailServer("::1", 587, MailTls.STARTTLS, "me@example.com", "s:/cret"),
        ),
        ("smtp://me@h.example:587", MailServer("h.example", 587, MailTls.STARTTLS, "me")),
    ],
)
def test_a_server_is_parsed(url: str, server: MailServer) -> None:
    assert MailServer.parse(url) == server
    assert "s:/cret" not in repr(server)


@pytest.mark.parametrize(
    "url",
    [
        *("smtp://h.example", "h.example:587", "http://h.example:587", "smtp://:587"),
        *("smtp://h.example:0", "smtp://h.example:65536", "smtp://h.example:587/path"),
        *("smtps://h.example:465?tls=none", "smtp://h.example:587?tls=maybe"),
        *("smtp://me:hunter2@h.example:587#x", "smtp://me:hunter2@h.example:25?tls=none"),
    ],
)
def test_other_forms_are_refused_without_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"allowed is smtp|without TLS") as refused:
        MailServer.parse(url)
    assert "hunter2" not in str(refused.value)


def test_a_sender_may_have_a_name() -> None:
    assert sender_address("Rewind, notices <rewind@localhost>".replace(",", "")) == (
        "rewind@localhost"
    )
    assert sender_address("rewind@example.com") == "rewind@example.com"
    for text in ("rewind", "a@b.c, d@e.f", "a\r\nBcc: x@y.z <a@b.c>", "a <b>", "<>"):
        with pytest.raises(ValueError, match="allowed is an address"):
            sender_address(text)
