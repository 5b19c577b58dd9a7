"""When an outage of a receiver is stored, and when it disables the webhook."""

import asyncio
import json
import time
from collections.abc import Callable

import pytest

from app.domain.account_notices import OUTAGE_MS, NewNoticeEndpoint
from app.domain.delivery import Unreachable
from app.domain.endpoint_health import CONSECUTIVE_FAILURES_MIN
from app.domain.model import NewWebhook, Webhook, WebhookStatus
from app.live.metrics import LiveMetrics
from app.live.routing import RoutingTable
from app.live.webhook_status import OutageReporter, WebhookStatusWriter
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import DEADLINE_S

START_MS = 1_795_000_000_000


ERROR = Unreachable("HTTP 500")


class Receiver:
    """A webhook in the store, whose receiver fails."""

    def __init__(self, store: Store, after_failures: int = 3, after_s: float = 60.0) -> None:
        self._store = store
        self.id = store.create_webhook(
            NewWebhook("https://receiver.example/hook", "test", new_secret())
        ).id
        store.enable_webhook(self.id, "https://receiver.example/hook")
        self.is_disabled = False
        self._after = (after_failures, after_s)

    @property
    def webhook(self) -> Webhook:
        return self._store.webhook(self.id)

    def report(
        self, report: Callable[[OutageReporter], object], done: Callable[[], object]
    ) -> None:
        """Report attempts to a new reporter, and wait until the store has the result."""

        async def scenario() -> None:
            writer = WebhookStatusWriter(self._store, RoutingTable(self._store), LiveMetrics())
            writing = asyncio.create_task(writer.run())
            failures, after_s = self._after
            report(OutageReporter(writer, disable_after_failures=failures, disable_after_s=after_s))
            deadline_s = time.monotonic() + DEADLINE_S
            while not done():
                assert time.monotonic() < deadline_s, "the status was not stored"
                await asyncio.sleep(0.01)
            writing.cancel()

        asyncio.run(scenario())

    def fail_event(self, outages: OutageReporter, now_ms: int) -> bool:
        """Report one event that fails at its only attempt: whether that disables the webhook."""
        outages.record_failure(self.webhook, now_ms)
        return outages.record_failed_event(self.webhook, ERROR, now_ms, self._set_disabled)

    def _set_disabled(self) -> None:
        self.is_disabled = True


@pytest.fixture
def receiver(store: Store) -> Receiver:
    return Receiver(store)


def test_the_start_of_an_outage_is_stored_after_several_failures(receiver: Receiver) -> None:
    def report(outages: OutageReporter) -> None:
        for number in range(CONSECUTIVE_FAILURES_MIN):
            assert not outages.has_outage
            outages.record_failure(receiver.webhook, START_MS + number)
        assert outages.has_outage

    receiver.report(report, lambda: receiver.webhook.failing_since_ms == START_MS)


def test_the_account_is_notified_of_an_outage_and_its_end(receiver: Receiver, store: Store) -> None:
    new = NewNoticeEndpoint(receiver.webhook.account_id, "https://example.com/n", "", new_secret())
    store.enable_notice_endpoint(store.create_notice_endpoint(new).id)
    first_ms = time.time_ns() // 1_000_000 - OUTAGE_MS

    def fail(outages: OutageReporter) -> None:
        for _ in range(CONSECUTIVE_FAILURES_MIN):
            outages.record_failure(receiver.webhook, first_ms)

    receiver.report(fail, lambda: receiver.webhook.failing_since_ms == first_ms)
    receiver.report(
        lambda outages: outages.record_success(receiver.webhook),
        lambda: receiver.webhook.failing_since_ms is None,
    )
    found = []
    while notice := store.claim_account_notice(60, []):
        found.append(json.loads(notice.body)["type"])
    assert sorted(found) == ["webhook.failing", "webhook.recovered"]


@pytest.mark.processes
def test_a_success_ends_an_outage_that_an_earlier_process_stored(receiver: Receiver) -> None:
    receiver.report(
        lambda outages: receiver.fail_event(outages, START_MS),
        lambda: receiver.webhook.failing_since_ms,
    )

    def report(outages: OutageReporter) -> None:
        outages.record_success(receiver.webhook)
        assert outages.is_healthy

    receiver.report(report, lambda: receiver.webhook.failing_since_ms is None)


def test_a_webhook_is_disabled_after_enough_failures_over_enough_time(receiver: Receiver) -> None:
    def report(outages: OutageReporter) -> None:
        assert not receiver.fail_event(outages, START_MS)
        assert not receiver.fail_event(outages, START_MS + 61_000)  # long enough, but too few
        assert receiver.fail_event(outages, START_MS + 62_000)

    receiver.report(report, lambda: receiver.is_disabled)
    assert receiver.webhook.status is WebhookStatus.DISABLED
    assert receiver.webhook.status_reason == (
        "stopped after 3 consecutive failures since 2026-11-18T11:06:40.000Z, "
        "the last one: HTTP 500"
    )


def test_many_failures_within_a_short_time_do_not_disable_a_webhook(receiver: Receiver) -> None:
    def report(outages: OutageReporter) -> None:
        assert not any(receiver.fail_event(outages, START_MS + number) for number in range(100))

    receiver.report(report, lambda: receiver.webhook.failing_since_ms == START_MS)
    assert receiver.webhook.status is WebhookStatus.ENABLED


def test_the_duration_of_an_outage_survives_the_process(receiver: Receiver) -> None:
    receiver.report(
        lambda outages: receiver.fail_event(outages, START_MS),
        lambda: receiver.webhook.failing_since_ms,
    )

    def report(outages: OutageReporter) -> None:
        results = [receiver.fail_event(outages, START_MS + 61_000) for _ in range(3)]
        assert results == [False, False, True]

    receiver.report(report, lambda: receiver.is_disabled)
