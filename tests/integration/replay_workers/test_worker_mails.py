"""Notices of accounts reach e-mail addresses through the worker's outbox."""

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import WebhookStatus
from app.webhooks.signing import new_secret
from tests.integration.replay_workers.test_worker_account_notices import (
    Owner,
    make_due,
    stored_webhook,
)
from tests.integration.replay_workers.worker_bench import Bench
from tests.support.http.mail_server import MailServerThread
from tests.support.processes.waiting import until_async


@pytest.fixture
def server(bench: Bench) -> Iterator[MailServerThread]:
    with MailServerThread() as server:
        bench.change(smtp_url=server.url, smtp_from="Rewind <rewind@example.com>")
        yield server


def confirmed(bench: Bench, account_id: str = DEFAULT_ACCOUNT) -> NoticeEndpoint:
    """An ENABLED endpoint that is an address."""
    new = NewNoticeEndpoint(account_id, "mailto:ops@example.com", "", new_secret())
    return bench.store.enable_notice_endpoint(bench.store.create_notice_endpoint(new).id)


def test_an_address_gets_the_notice_that_a_url_gets(bench: Bench, server: MailServerThread) -> None:
    async def scenario() -> None:
        owner = Owner()
        await owner.endpoint(bench)
        endpoint = confirmed(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")

        def is_delivered() -> bool:
            return bench.store.notice_endpoint(endpoint.id).delivered_ms is not None

        async with bench.worker():
            await until_async(lambda: bool(owner.accepted), "the request was accepted")
            await until_async(is_delivered, "the mail was accepted")
        await owner.receiver.stop()
        (mail,), (notice,) = server.mails, owner.notices
        assert mail.recipient == "ops@example.com"
        assert mail.message["Message-ID"].startswith("<ntc_")
        assert "was disabled" in mail.message["Subject"]
        _, _, document = mail.text.partition("\n{")
        assert json.loads("{" + document) == json.loads(notice.body)

    asyncio.run(scenario())


def test_a_deferred_mail_is_sent_again_with_its_message_id(
    bench: Bench, server: MailServerThread, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")
    server.answer(RCPT="450 4.2.1 greylisted")

    async def scenario() -> None:
        endpoint = confirmed(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        notice_id = None
        async with bench.worker():
            await until_async(lambda: "notice-failed" in caplog.messages, "the failure was stored")
            assert "greylisted" in (bench.store.notice_endpoint(endpoint.id).failure or "")
            notice_id = caplog.records[-1].__dict__["notice"]
            server.answer()
            make_due(bench)
            await until_async(lambda: "notice-sent" in caplog.messages, "the mail was accepted")
        (mail,) = server.mails
        assert mail.message["Message-ID"] == f"<{notice_id}@example.com>"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("reply", "event", "status"),
    [
        ("550 5.7.1 blocked", "notice-given-up", WebhookStatus.ENABLED),
        ("550 5.1.1 no such user", "notice-endpoint-disabled", WebhookStatus.DISABLED),
    ],
)
def test_a_refused_mail_is_given_up_and_an_unknown_address_disabled(
    bench: Bench,
    server: MailServerThread,
    caplog: pytest.LogCaptureFixture,
    reply: str,
    event: str,
    status: WebhookStatus,
) -> None:
    server.answer(RCPT=reply)

    async def scenario() -> None:
        endpoint = confirmed(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        async with bench.worker():
            await until_async(lambda: event in caplog.messages, "the refusal was stored")
        assert bench.store.notice_endpoint(endpoint.id).status is status
        make_due(bench)
        assert bench.store.claim_account_notice(60, []) is None

    asyncio.run(scenario())


def test_a_mail_server_that_hangs_delays_no_requests(
    bench: Bench, server: MailServerThread
) -> None:
    bench.change(delivery_timeout_s=3_600.0)
    server.hold("RCPT")

    async def scenario() -> None:
        for n in range(8):
            account = bench.store.create_account(f"other{n}")
            confirmed(bench, account.id)
            webhook = bench.store_webhook("http://127.0.0.1:1/unused", account.id)
            bench.store.disable_webhook(webhook.id, "by hand")
        owner = Owner()
        await owner.endpoint(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        async with bench.worker():
            await until_async(lambda: bool(owner.accepted), "the request was sent")
            assert server.mails == []
            server.gate.set()
            await until_async(lambda: len(server.mails) == 8, "all mails were sent")
        await owner.receiver.stop()

    asyncio.run(scenario())


def test_a_worker_without_a_mail_server_leaves_mails_to_others(bench: Bench) -> None:
    async def scenario() -> None:
        confirmed(bench)
        owner = Owner()
        await owner.endpoint(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        async with bench.worker():
            await until_async(lambda: bool(owner.accepted), "the request was sent")
        await owner.receiver.stop()
        notice = bench.store.claim_account_notice(60, [])
        assert notice is not None
        assert (notice.endpoint.mail_address, notice.attempt) == ("ops@example.com", 1)

    asyncio.run(scenario())
