"""Notices of accounts reach their endpoints, signed, whatever the webhooks do."""

import asyncio
import json
import logging
from typing import Any

import pytest
from sqlalchemy import update

from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import Webhook, WebhookStatus
from app.replay_workers.notifier import CONCURRENT_MAX
from app.store.notice_tables import account_notices
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.signing import new_secret
from tests.integration.replay_workers.worker_bench import Bench
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import until_async


class Owner:
    """The receiver of an account's notices, which verifies their signatures."""

    def __init__(self) -> None:
        self.notices: list[ReceivedWebhook] = []
        self.receiver = WebhookReceiver(port=free_port(), on_webhook=self.notices.append)

    async def endpoint(self, bench: Bench, account_id: str = DEFAULT_ACCOUNT) -> NoticeEndpoint:
        """An ENABLED endpoint of this receiver, which starts."""
        await self.receiver.start()
        self.receiver.secret = new_secret()
        return self.store_endpoint(bench, account_id)

    def store_endpoint(self, bench: Bench, account_id: str = DEFAULT_ACCOUNT) -> NoticeEndpoint:
        """Another ENABLED endpoint of the receiver."""
        assert self.receiver.secret is not None
        url = f"{self.receiver.url}/notices"
        new = NewNoticeEndpoint(account_id, url, "owner", self.receiver.secret)
        return bench.store.enable_notice_endpoint(bench.store.create_notice_endpoint(new).id)

    @property
    def accepted(self) -> list[str]:
        """The ids of the notices that it accepted."""
        return [notice.event_id for notice in self.notices if notice.status == 204]


def stored_webhook(bench: Bench) -> Webhook:
    return bench.store_webhook("http://127.0.0.1:1/unused")


def make_due(bench: Bench) -> None:
    """Let the pauses of all notices end now."""
    statement = update(account_notices).values(due_ms=0)
    bench.store.database.write(lambda connection: connection.execute(statement))


def test_the_owner_of_a_webhook_that_answers_410_hears_of_it(bench: Bench) -> None:
    async def scenario() -> None:
        owner = Owner()
        await owner.endpoint(bench)
        webhook = await bench.webhook()
        bench.receiver.answer(410)
        await bench.publish(bench.events(webhook.id, 0, 3))
        replay = bench.replay(webhook)
        async with bench.worker():
            await until_async(lambda: len(owner.accepted) == 2, "both notices were accepted")
        await owner.receiver.stop()
        found = {document["type"]: document["data"] for document in map(parsed, owner.notices)}
        assert found.keys() == {"webhook.disabled", "replay.failed"}
        disabled = found["webhook.disabled"]
        assert (disabled["webhookId"], "410" in disabled["reason"]) == (webhook.id, True)
        failed = found["replay.failed"]
        assert (failed["replayId"], failed["state"]) == (replay.id, "FAILED")
        assert all(notice.event_id.startswith("ntc_") for notice in owner.notices)
        assert {notice.path for notice in owner.notices} == {"/notices"}

    asyncio.run(scenario())


def parsed(notice: ReceivedWebhook) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(notice.body)
    return document


def test_the_end_of_a_replay_wakes_its_worker_for_the_notice_to_the_owner(bench: Bench) -> None:
    bench.change(poll_interval_s=3_600.0)

    async def scenario() -> None:
        owner = Owner()
        await owner.endpoint(bench)
        webhook = await bench.webhook()
        await bench.publish(bench.events(webhook.id, 0, 3))
        bench.replay(webhook)
        async with bench.worker():
            await until_async(lambda: bool(owner.accepted), "the notice was accepted")
        await owner.receiver.stop()
        (notice,) = owner.notices
        assert parsed(notice)["data"]["counts"]["delivered"] == 3

    asyncio.run(scenario())


def test_a_rejected_notice_is_sent_again_with_its_id(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "app.replay_workers")

    async def scenario() -> None:
        owner = Owner()
        endpoint = await owner.endpoint(bench)
        owner.receiver.answer(503)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        async with bench.worker():
            await until_async(lambda: "notice-failed" in caplog.messages, "the failure was stored")
            assert "503" in (bench.store.notice_endpoint(endpoint.id).failure or "")
            owner.receiver.answer(204)
            make_due(bench)
            await until_async(lambda: "notice-sent" in caplog.messages, "the notice was accepted")
        await owner.receiver.stop()
        first, second = owner.notices
        assert (first.event_id, first.body) == (second.event_id, second.body)
        assert (first.status, second.status) == (503, 204)
        assert bench.store.notice_endpoint(endpoint.id).delivered_ms is not None

    asyncio.run(scenario())


def test_a_notice_survives_the_worker_that_claimed_it(bench: Bench) -> None:
    async def scenario() -> None:
        owner = Owner()
        await owner.endpoint(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        # What a process that was killed in the middle of an attempt leaves behind.
        claimed = bench.store.claim_account_notice(0, [])
        assert claimed is not None
        async with bench.worker(), bench.worker():
            await until_async(lambda: bool(owner.accepted), "the notice was accepted")
        await owner.receiver.stop()
        assert owner.accepted == [claimed.id]

    asyncio.run(scenario())


def test_an_endpoint_that_answers_410_gets_no_more_notices(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        owner = Owner()
        endpoint = await owner.endpoint(bench)
        owner.receiver.answer(410)
        for _ in range(3):
            bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        async with bench.worker():
            await until_async(
                lambda: "notice-endpoint-disabled" in caplog.messages, "the endpoint is disabled"
            )
        await owner.receiver.stop()
        assert len(owner.notices) == 1
        found = bench.store.notice_endpoint(endpoint.id)
        assert found.status is WebhookStatus.DISABLED
        assert bench.store.claim_account_notice(60, []) is None

    asyncio.run(scenario())


def test_an_endpoint_that_hangs_delays_no_other(bench: Bench) -> None:
    # The request that hangs does not time out during the test.
    bench.change(delivery_timeout_s=3_600.0)

    async def scenario() -> None:
        hanging, owner = Owner(), Owner()
        await hanging.endpoint(bench)
        hanging.receiver.answer(204, delay_s=3_600)
        await owner.endpoint(bench)
        for _ in range(20):
            bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        async with bench.worker():
            await until_async(lambda: len(owner.accepted) == 20, "all notices were accepted")
            assert len(hanging.notices) <= 1
            await hanging.receiver.stop()
        await owner.receiver.stop()
        assert len(set(owner.accepted)) == 20

    asyncio.run(scenario())


def test_an_account_whose_endpoints_hang_delays_no_other(bench: Bench) -> None:
    bench.change(delivery_timeout_s=3_600.0)

    async def scenario() -> None:
        hanging, owner = Owner(), Owner()
        await hanging.endpoint(bench)
        hanging.receiver.answer(204, delay_s=3_600)
        for _ in range(CONCURRENT_MAX):
            hanging.store_endpoint(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")
        account = bench.store.create_account("other")
        await owner.endpoint(bench, account.id)
        async with bench.worker():
            await until_async(lambda: len(hanging.notices) == 2, "two notices hang")
            webhook = bench.store_webhook("http://127.0.0.1:1/unused", account.id)
            bench.store.disable_webhook(webhook.id, "by hand")
            await until_async(lambda: bool(owner.accepted), "the other account's was accepted")
            assert len(hanging.notices) == 2
            await hanging.receiver.stop()
        await owner.receiver.stop()

    asyncio.run(scenario())


def test_attempts_are_counted(bench: Bench) -> None:
    async def scenario() -> None:
        owner = Owner()
        await owner.endpoint(bench)
        bench.store.disable_webhook(stored_webhook(bench).id, "by hand")

        def count() -> float | None:
            name = "rewind_worker_account_notices_total"
            return bench.metrics.registry.get_sample_value(name, {"result": "sent"})

        async with bench.worker():
            await until_async(lambda: count() == 1, "the notice was counted")
        await owner.receiver.stop()

    asyncio.run(scenario())
