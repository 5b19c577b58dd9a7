"""Delivery statistics of the live path, on a real broker with a real receiver."""

from pathlib import Path

from app.domain.tallies import Span, summed
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import LiveScene, event, now_ms

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def test_outcomes_of_each_webhook_are_counted_once(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url) as scene:
        scene.make()
        mine, others = scene.webhook(receiver), scene.webhook(other, auto_recovery=False)
        disabled, deleted = scene.webhook(other), scene.webhook(other)
        scene.store.disable_webhook(disabled.id, "its owner is on holiday")
        scene.store.delete_webhook(deleted.id)
        live = scene.live(live_delays_s="0,0.05")
        other.answer(503)
        old_ms = now_ms() - 2 * DAY_MS
        scene.owe(mine, event(1), event(2), event(2))
        scene.owe(mine, event(3), time_ms=old_ms)
        scene.owe(others, event(4))
        scene.owe(disabled, event(5))
        scene.owe(deleted, event(6))
        scene.until_outcomes(7)
        # While it runs, not with its last breath alone.
        until(lambda: scene.store.tallies(mine.id, Span.SETTLED, 0), "the first counts")
        # A copy of what was delivered a while ago.
        scene.owe(mine, event(1))
        scene.until_outcomes(8)
        assert live.stop() == 0
        ids = [mine.id, others.id, disabled.id, deleted.id]
        settled = scene.store.sum_tallies(ids, Span.SETTLED, 0)
        found = {key: (each.delivered, each.missed) for key, each in settled.items()}
        assert found == {mine.id: (2, 1), others.id: (0, 1), disabled.id: (0, 1)}
        assert settled[mine.id].skipped == 1
        assert settled[others.id].failed == 1
        assert settled[disabled.id].disabled == 1
        # One for each event that was attempted, however often.
        assert [sum(settled[each].took) for each in ids[:3]] == [2, 1, 0]
        hours = scene.store.tallies(mine.id, Span.EVENT, 0)
        assert (hours[0].start_ms, hours[0].skipped) == (old_ms // HOUR_MS * HOUR_MS, 1)
        assert hours[0].missed_until_ms == old_ms + 1
        assert summed(hours[1:], 0).delivered == 2
        (missed,) = scene.store.missed_hours(mine.id, 0)
        assert (missed.start_ms, missed.missed, missed.is_replayed) == (hours[0].start_ms, 1, False)
