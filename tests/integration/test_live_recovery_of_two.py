"""Two live processes on one database: receivers that were down get what they missed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from app.domain.delivery import LiveOutcome
from app.domain.model import Replay, Webhook
from app.domain.options import Only, ReplayReason
from app.domain.states import ReplayState
from app.live import deliverer
from app.log.topics import DELIVERY_LOG
from logbroker.client.partitioner import partition_for_key
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import PARTITIONS, LiveProcess, LiveScene, events, ids

pytestmark = pytest.mark.long

PROBES: Final[dict[str, Any]] = {"retry_base_s": 0.1, "retry_cap_s": 0.5}
BEFORE: Final = 40
"""Events of each webhook before the outage."""

PART: Final = 300
"""Events of each webhook between two faults."""

AFTER: Final = 20
HELD_MAX: Final = 20
"""Events of a webhook that are not skipped at once: the probe, and requests in flight."""


class Outage:
    """Two live processes, a worker, and a webhook with its own receiver in each partition."""

    def __init__(
        self, scene: LiveScene, worker: ServerProcess, receivers: list[ReceiverThread]
    ) -> None:
        self._scene = scene
        self.receivers = receivers
        self._webhooks = self._make_webhooks()
        self.published = 0
        self.live = [self._start_live(number) for number in range(2)]
        worker.start("rewind worker ready")
        for process in self.live:
            until(lambda: scrape(process.metrics_port)["rewind_live_joined"], "it has joined")  # noqa: B023

    def publish(self, count: int) -> None:
        """Address new events to all webhooks, the same to each."""
        for webhook in self._webhooks:
            self._scene.owe(webhook, *events(self.published, self.published + count))
        self.published += count

    def until_all_are_delivered(self) -> None:
        wanted = set(ids(0, self.published))
        until(lambda: all(set(each.taken) >= wanted for each in self.receivers), "all events")
        lag = (deliverer.GROUP, DELIVERY_LOG)
        until(lambda: not self._scene.uncommitted(*lag), "all are settled")

    def until_skipped(self, count: int) -> None:
        """Wait until all but a few of `count` events of each webhook are skipped."""
        wanted = len(self._webhooks) * (count - HELD_MAX)
        until(lambda: len(self.settled(LiveOutcome.SKIPPED)) >= wanted, "skipped events")

    def restart(self, number: int) -> None:
        """Kill a live process and start it again."""
        self.live[number].kill()
        self.live[number] = self._start_live(number)

    def settled(self, outcome: LiveOutcome) -> set[tuple[int, int]]:
        """The places of the events with this outcome."""
        found = self._scene.outcomes()
        return {(each.partition, each.offset) for each in found if each.outcome is outcome}

    def recoveries(self) -> list[Replay]:
        """Wait for the end of all replays, and return them."""

        def are_over() -> bool:
            replays = self._scene.store.replays().items
            by_webhook = {each.webhook_id for each in replays}
            states = {each.state for each in replays}
            return len(by_webhook) == len(self._webhooks) and states == {ReplayState.COMPLETED}

        until(are_over, "the end of the recoveries")
        return list(self._scene.store.replays().items)

    def _make_webhooks(self) -> list[Webhook]:
        """A webhook in each partition."""
        found: dict[int, Webhook] = {}
        while len(found) < PARTITIONS:
            webhook = self._scene.webhook(self.receivers[len(found)])
            partition = partition_for_key(webhook.id.encode(), PARTITIONS)
            if partition in found:
                self._scene.store.delete_webhook(webhook.id)
            else:
                found[partition] = webhook
        return list(found.values())

    def _start_live(self, number: int) -> LiveProcess:
        return self._scene.live(**PROBES, server=f"live-{number}")


@pytest.fixture
def outage(tmp_path: Path, broker: BrokerProcess, database_url: str) -> Iterator[Outage]:
    environment = {
        "REWIND_DATABASE": database_url,
        "REWIND_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_ORIGIN": "here",
    } | {f"REWIND_{name.upper()}": str(value) for name, value in PROBES.items()}
    worker = ServerProcess(["-m", "app", "worker"], tmp_path / "worker.log", environment)
    with ExitStack() as stack:
        receivers = [stack.enter_context(ReceiverThread()) for _ in range(PARTITIONS)]
        scene = stack.enter_context(LiveScene(tmp_path, broker.bootstrap_servers, database_url))
        scene.make()
        yield Outage(scene, stack.enter_context(worker), receivers)


@pytest.mark.parametrize("database_url", ["mariadb"], indirect=True)
def test_receivers_that_return_have_every_event_once_after_both_live_processes_were_killed(
    outage: Outage,
) -> None:
    outage.publish(BEFORE)
    outage.until_all_are_delivered()
    for receiver in outage.receivers:
        receiver.answer(503)
    for number in range(2):
        outage.publish(PART)
        outage.until_skipped((2 * number + 1) * PART)
        # While it has new events, too.
        outage.publish(PART)
        outage.restart(number)
        outage.until_skipped((2 * number + 2) * PART)
    for receiver in outage.receivers:
        receiver.answer(204)
    outage.publish(AFTER)
    outage.until_all_are_delivered()

    replays = outage.recoveries()
    assert {(each.reason, each.options.only) for each in replays} == {
        (ReplayReason.RECOVERY, Only.FAILED)
    }
    for receiver in outage.receivers:
        assert Counter(receiver.taken) == Counter(ids(0, outage.published))
        assert receiver.problems == []
    replayed = sum(each.counts.delivered for each in replays)
    assert sum(each.counts.failed for each in replays) == 0
    live = outage.settled(LiveOutcome.DELIVERED)
    assert len(live) + replayed == len(outage.receivers) * outage.published
    # What a replay sent was skipped before.
    assert len(outage.settled(LiveOutcome.SKIPPED) - live) == replayed
    assert not outage.settled(LiveOutcome.FAILED)
