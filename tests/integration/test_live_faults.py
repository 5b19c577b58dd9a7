"""Live processes that crash, stop and share partitions; outages of database and log."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.delivery import LiveOutcome
from app.log.topics import DELIVERY_LOG, EVENTS
from app.store import migrate
from tests.support.database.mariadb import MariaDbServer, require_mariadb
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import READY, LiveScene, event, events, ids

pytestmark = pytest.mark.long

MATCHER = "rewind-live"
DELIVERY = "rewind-delivery"


AT_ONCE = ("--group-initial-rebalance-delay-ms", "0")


@pytest.fixture
def scene(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread, other: ReceiverThread
) -> Iterator[LiveScene]:
    """It ends before its receivers. All webhooks share one partition."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url, partitions=1) as scene:
        scene.make()
        yield scene


def test_after_a_crash_only_unsettled_events_are_delivered(
    scene: LiveScene, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    failing = scene.webhook(receiver, auto_recovery=False)
    healthy = scene.webhook(other)
    first = scene.live(live_delays_s="0,3600")
    receiver.answer(503)
    # Of one partition, in turn: every other record is open when the process dies.
    for number in range(50):
        scene.owe(failing, event(number))
        scene.owe(healthy, event(1_000 + number))
    until(lambda: len(receiver.webhooks) == 50, "every event of one was attempted")
    until(lambda: len(other.taken) == 50, "every event of the other came")
    until(lambda: scene.uncommitted(DELIVERY, DELIVERY_LOG) == 0, "the position is stored")
    # The note of the last commit may tell of less than is settled, until the next one.
    settled = "rewind_live_unsettled_records"
    until(lambda: scrape(first.metrics_port)[settled] == 50, "half of it is settled")
    scene.owe(healthy, event(2_000))
    until(lambda: len(other.taken) == 51, "one more came")
    until(lambda: scene.uncommitted(DELIVERY, DELIVERY_LOG) == 0, "and is stored")
    first.kill()
    receiver.answer(204)
    scene.live(live_delays_s="0,3600")
    until(lambda: len(receiver.taken) >= 50, "what was open came")
    scene.owe(healthy, event(3_000))
    until(lambda: "evt_3000" in other.taken, "what came after")
    assert Counter(receiver.taken) == Counter(ids(0, 50))
    # One may have been settled between the last commit and the crash.
    assert set(Counter(other.taken)) == {*ids(1_000, 1_050), "evt_2000", "evt_3000"}
    assert Counter(other.taken).total() <= 53


def test_no_event_is_lost_by_crashes_while_events_flow(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    receiver.answer(204, delay_s=0.005)
    for wave in range(2):
        live = scene.live()
        scene.publish(*events(wave * 1_000, wave * 1_000 + 1_000))
        until(lambda: len(set(receiver.taken)) >= wave * 1_000 + 300, "some came")  # noqa: B023
        live.kill()
    scene.live()
    until(lambda: len(set(receiver.taken)) == 2_000, "all came")
    logged = {record.headers["event-id"] for record in scene.read(DELIVERY_LOG)}
    assert logged == set(ids(0, 2_000))


def test_a_stopped_process_finishes_its_requests_and_starts_no_others(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    receiver.answer(204, delay_s=0.5)
    first = scene.live(live_in_flight=4)
    scene.owe(webhook, *events(0, 40))
    until(lambda: len(receiver.webhooks) >= 4, "the first requests are under way")
    assert first.stop() == 0
    receiver.answer(204)
    scene.live()
    until(lambda: len(receiver.taken) >= 40, "the rest came")
    scene.until_outcomes(40)
    assert Counter(receiver.taken) == Counter(ids(0, 40))


def test_processes_share_the_partitions_and_repeat_nothing(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    with (
        ReceiverThread() as receiver,
        LiveScene(tmp_path, broker.bootstrap_servers, url, partitions=8) as scene,
    ):
        scene.make()
        scene.webhook(receiver, "*")
        webhooks = [scene.webhook(receiver) for _ in range(8)]
        receiver.expect(None)
        first = scene.live()
        published = 0

        def publish_more() -> None:
            nonlocal published
            scene.publish(*events(published, published + 20))
            for webhook in webhooks:
                scene.owe(webhook, *events(10_000 + published, 10_000 + published + 20))
            published += 20

        def is_shared() -> bool:
            publish_more()
            assigned = '"event": "partitions-assigned", "group": '
            return all(f'{assigned}"{group}"' in second.output for group in (MATCHER, DELIVERY))

        publish_more()
        second = scene.live()
        until(is_shared, "both groups are shared")
        assert first.stop() == 0
        publish_more()
        wanted = published * (1 + len(webhooks))
        until(lambda: len(receiver.taken) >= wanted, "everything came")
        scene.until_outcomes(wanted)
        assert scene.outcome_counts() == {LiveOutcome.DELIVERED: wanted}
        assert len(receiver.taken) == wanted
        assert second.exit_code is None


def test_the_database_may_start_later_and_have_an_outage(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    require_mariadb()
    database = MariaDbServer()
    database.start(tmp_path / "mariadb")
    try:
        url = database.create_database()
        migrate(url)
        with LiveScene(tmp_path, broker.bootstrap_servers, url) as scene:
            scene.make_topics()
            scene.webhook(receiver, "follow.*")
            database.kill()
            live = scene.live(launch_only=True)
            live.until_says('"event": "waiting"')
            database.start(tmp_path / "mariadb")
            live.until_says(READY)
            scene.publish(event(1))
            until(lambda: receiver.taken == ["evt_1"], "the first event")
            database.kill()
            live.until_says('"event": "routing-table-not-refreshed"')
            scene.publish(event(2))
            until(lambda: receiver.taken == ["evt_1", "evt_2"], "one without the database")
            assert scrape(live.metrics_port)["rewind_live_routing_age_seconds"] > 0
            database.start(tmp_path / "mariadb")
            scene.webhook(receiver, "new.*")
            receiver.expect(None)
            numbers = itertools.count(3)

            def is_refreshed() -> bool:
                scene.publish(event(next(numbers), "new.one"))
                return len(receiver.taken) > 2

            until(is_refreshed, "the new webhook has events")
    finally:
        database.kill()


def test_the_log_may_start_late_and_have_an_outage(
    tmp_path: Path, receiver: ReceiverThread
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    migrate(url)
    with (
        BrokerProcess(tmp_path / "log", *AT_ONCE) as broker,
        LiveScene(tmp_path, broker.bootstrap_servers, url) as scene,
    ):
        scene.webhook(receiver, "*")
        live = scene.live(launch_only=True)
        live.until_says('"event": "waiting"')
        broker.serve()
        live.until_says(READY)
        scene.publish(event(1))
        until(lambda: receiver.taken == ["evt_1"], "the first event")
        until(lambda: not scene.uncommitted("rewind-live", EVENTS), "it is committed")
        broker.kill()
        live.until_says('"event": "log-unavailable"')
        broker.serve()
        scene.publish(event(2))
        until(lambda: "evt_2" in receiver.taken, "one after the log was away")
        assert live.stop() == 0


def test_a_process_stops_in_time_while_the_log_is_unavailable(
    tmp_path: Path, receiver: ReceiverThread
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    with (
        BrokerProcess(tmp_path / "log", *AT_ONCE).serve() as broker,
        LiveScene(tmp_path, broker.bootstrap_servers, url) as scene,
    ):
        scene.make()
        scene.webhook(receiver, "*")
        live = scene.live()
        broker.kill()
        live.until_says('"event": "log-unavailable"')
        assert live.stop() == 0


def test_a_port_in_use_is_an_error(scene: LiveScene) -> None:
    first = scene.live()
    second = scene.live(launch_only=True, live_metrics_port=first.metrics_port)
    assert second.wait() == 1
    assert "Address already in use" in second.output
    assert "Traceback" not in second.output
