"""A receiver is down while events are published in two data centres, one of which is then lost."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.domain.delivery import LiveOutcome
from app.domain.windows import format_time
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.data_centres import DataCentre, Row, TwoDataCentres
from tests.support.service.live_service import now_ms

pytestmark = pytest.mark.long

EACH = 60
"""Events of an outage in each data centre."""

PROBES: dict[str, Any] = {"retry_base_s": 0.1, "retry_cap_s": 0.5}


class Scene:
    """Two data centres with one webhook, and the ids of what is published."""

    def __init__(self, centres: TwoDataCentres, receiver: ReceiverThread) -> None:
        self.centres = centres
        self.receiver = receiver
        self.webhook_id = centres.webhook(receiver, "*", auto_recovery=True)
        self.published = Counter[str]()

    def publish(self, centre: DataCentre, count: int) -> list[str]:
        start = len(self.published)
        found = [f"evt_{number:04}" for number in range(start, start + count)]
        centre.publish({"id": each, "type": "made", "data": {}} for each in found)
        self.published.update(found)
        return found

    def miss(self) -> None:
        """Publish in both data centres while the receiver is down."""
        self.receiver.answer(503)
        before = self.skipped
        for each in (self.centres.a, self.centres.b):
            self.publish(each, EACH)
        # All but the probe of each.
        until(lambda: self.skipped >= before + 2 * (EACH - 1), "skipped events")
        until(lambda: self.missed()["missed"] >= self.skipped, "they are counted")

    @property
    def skipped(self) -> int:
        centres = (self.centres.a, self.centres.b)
        return sum(
            each.outcome is LiveOutcome.SKIPPED for at in centres for each in at.own_outcomes()
        )

    def until_recovered(self, number: int) -> list[str]:
        """Wait for this many recoveries of all time, and return where they ran."""

        def recoveries() -> list[Row]:
            found: list[Row] = self.centres.b.api.get("/replays?reason=recovery").json()["items"]
            return [each for each in found if each["state"] == "COMPLETED"]

        until(lambda: len(recoveries()) == number, f"{number} recoveries")
        assert all(each["counts"]["failed"] == 0 for each in recoveries())
        return [each["origin"] for each in recoveries()]

    def missed(self) -> Row:
        answer = self.centres.b.api.get(f"/webhooks/{self.webhook_id}/missed")
        found: Row = answer.json()
        return found


@pytest.fixture
def scene(tmp_path: Path, database_url: str) -> Iterator[Scene]:
    with TwoDataCentres(tmp_path, database_url, **PROBES) as centres, ReceiverThread() as receiver:
        yield Scene(centres, receiver)


@pytest.mark.parametrize("database_url", ["mariadb"], indirect=True)
def test_each_data_centre_recovers_its_own_events_and_a_replay_those_of_a_lost_one(
    scene: Scene,
) -> None:
    centres, receiver = scene.centres, scene.receiver
    scene.miss()
    until(lambda: centres.to_a.is_level and centres.to_b.is_level, "the mirrors have caught up")
    receiver.answer(204)
    assert sorted(scene.until_recovered(2)) == ["a", "b"]
    until(lambda: set(receiver.taken) >= set(scene.published), "all events")
    assert Counter(receiver.taken) == scene.published

    failing_ms = now_ms()
    scene.miss()
    until(lambda: centres.to_a.is_level and centres.to_b.is_level, "the mirrors have caught up")
    centres.lose_a()
    receiver.answer(204)
    scene.publish(centres.b, 1)
    assert sorted(scene.until_recovered(3)) == ["a", "b", "b"]
    # Those that only the lost data centre would recover.
    until(lambda: len(set(receiver.taken)) == len(scene.published) - EACH, "the events of b")
    assert scene.missed()["unreplayed"] >= EACH - 1

    window = {"from": format_time(failing_ms), "to": format_time(now_ms())}
    replay = centres.b.ask_replay(webhookId=scene.webhook_id, only="failed", **window)
    assert centres.b.finished(replay)["counts"]["delivered"] == EACH
    assert Counter(receiver.taken) == scene.published
