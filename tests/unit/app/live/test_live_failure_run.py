"""When a run of failures is told of, and when it ends a webhook."""

import asyncio
import time
from collections.abc import Callable

import pytest

from app.domain.model import NewWebhook, Webhook, WebhookStatus
from app.live.failure_run import FAILURES_TO_BE_DOWN, FailureRun
from app.live.metrics import LiveMetrics
from app.live.routing import RoutingTable
from app.live.standing import Standing
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import DEADLINE_S

BEGIN_MS = 1_795_000_000_000


class Receiver:
    """A webhook in the store, and the run of its failures."""

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

    def run(self, work: Callable[[FailureRun], object], done: Callable[[], object]) -> None:
        """Let things happen, and wait for what the store is told of it."""

        async def scenario() -> None:
            standing = Standing(self._store, RoutingTable(self._store), LiveMetrics())
            telling = asyncio.create_task(standing.run())
            failures, after_s = self._after
            work(FailureRun(standing, disable_after_failures=failures, disable_after_s=after_s))
            deadline_s = time.monotonic() + DEADLINE_S
            while not done():
                assert time.monotonic() < deadline_s, "the store was never told"
                await asyncio.sleep(0.01)
            telling.cancel()

        asyncio.run(scenario())

    def fail(self, run: FailureRun, now_ms: int) -> bool:
        """One event fails at its only attempt: whether that ends the webhook."""
        run.attempt_failed(self.webhook, now_ms)
        return run.event_failed(self.webhook, "HTTP 500", now_ms, self._end)

    def _end(self) -> None:
        self.is_disabled = True


@pytest.fixture
def receiver(store: Store) -> Receiver:
    return Receiver(store)


def test_an_outage_is_told_of_once_it_is_one(receiver: Receiver) -> None:
    def work(run: FailureRun) -> None:
        for number in range(FAILURES_TO_BE_DOWN):
            assert not run.is_down
            run.attempt_failed(receiver.webhook, BEGIN_MS + number)
        assert run.is_down

    receiver.run(work, lambda: receiver.webhook.failing_since_ms == BEGIN_MS)


@pytest.mark.processes
def test_a_receiver_that_takes_again_is_no_longer_said_to_fail(receiver: Receiver) -> None:
    receiver.run(
        lambda run: receiver.fail(run, BEGIN_MS), lambda: receiver.webhook.failing_since_ms
    )

    def work(run: FailureRun) -> None:
        # As after a restart: only the store knows of the run.
        run.took_one(receiver.webhook)
        assert run.is_over

    receiver.run(work, lambda: receiver.webhook.failing_since_ms is None)


def test_a_webhook_is_disabled_when_both_bounds_are_passed(receiver: Receiver) -> None:
    def work(run: FailureRun) -> None:
        assert not receiver.fail(run, BEGIN_MS)
        assert not receiver.fail(run, BEGIN_MS + 61_000)  # long enough, and too few
        assert receiver.fail(run, BEGIN_MS + 62_000)

    receiver.run(work, lambda: receiver.is_disabled)
    assert receiver.webhook.status is WebhookStatus.DISABLED
    assert receiver.webhook.status_reason == (
        "3 events in a row were not taken since 2026-11-18T11:06:40.000Z, "
        "the last one for this reason: HTTP 500"
    )


def test_many_failures_within_a_short_time_disable_nothing(receiver: Receiver) -> None:
    def work(run: FailureRun) -> None:
        assert not any(receiver.fail(run, BEGIN_MS + number) for number in range(100))

    receiver.run(work, lambda: receiver.webhook.failing_since_ms == BEGIN_MS)
    assert receiver.webhook.status is WebhookStatus.ENABLED


def test_how_long_a_run_lasts_outlives_the_process(receiver: Receiver) -> None:
    receiver.run(
        lambda run: receiver.fail(run, BEGIN_MS), lambda: receiver.webhook.failing_since_ms
    )

    def work(run: FailureRun) -> None:
        ends = [receiver.fail(run, BEGIN_MS + 61_000) for _ in range(3)]
        assert ends == [False, False, True]

    receiver.run(work, lambda: receiver.is_disabled)
