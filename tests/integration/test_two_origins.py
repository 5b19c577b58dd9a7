"""Two data centres on one database: their replays, their logs, and mirrored records."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from sqlalchemy import create_engine, text

from app.config import Settings
from app.domain.dedupe import lasting_digest
from app.domain.delivery import LiveOutcome
from app.domain.model import Counts, NewReplay, Webhook, Window
from app.domain.options import Only, ReplayOptions
from app.domain.partition_progress import PartitionCommit, PartitionProgress
from app.domain.states import ReplayState
from app.domain.windows import MINUTE_MS, format_time
from app.live import deliverer, matcher
from app.live.mirrored import WAITING_MAX
from app.log.outcomes import DeliveryOutcome, encode_outcome
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS
from logbroker.client.partitioner import partition_for_key
from tests.support.database.migrated import make_migrated
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.committed_offsets import commit_offsets
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.live_service import (
    PARTITIONS,
    READY,
    LiveScene,
    event,
    events,
    ids,
    now_ms,
)
from tests.support.service.replay_service import Service

pytestmark = pytest.mark.long

HOUR_MS = 60 * MINUTE_MS
MIRRORED = "rewind_live_mirrored_total"

# Late arrivals and claims depend on the kind of database; other tests use one kind.
ON_MARIADB = pytest.mark.parametrize("database_url", ["mariadb"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def broker_b(tmp_path: Path) -> Iterator[BrokerProcess]:
    """The broker of data centre b; that of a is `broker`."""
    with BrokerProcess(tmp_path / "log-b", name="broker-b") as broker:
        yield broker.serve()


@pytest.fixture
def both(
    tmp_path: Path, broker: BrokerProcess, broker_b: BrokerProcess, database_url: str
) -> tuple[Settings, Settings]:
    """The settings of the data centres a and b."""
    make_migrated(database_url)
    a, b = (
        Settings(
            data_dir=tmp_path,
            database=database_url,
            bootstrap_servers=each.bootstrap_servers,
            origin=origin,
            partitions=1,
            allow_private_targets=True,
            poll_interval_s=0.02,
        )
        for each, origin in ((broker, "a"), (broker_b, "b"))
    )
    return a, b


@ON_MARIADB
def test_a_replay_reads_the_log_of_the_data_centre_where_it_is_created(
    both: tuple[Settings, Settings],
) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            a, b = [await stack.enter_async_context(Service.running(each)) for each in both]
            webhook = a.webhook()
            await a.publish(webhook, at_a=-2_000)
            await b.publish(webhook, at_b_1=-2_000, at_b_2=-1_000)
            asked = {
                "webhookId": webhook.id,
                "from": format_time(a.now_ms - 5_000),
                "to": format_time(b.now_ms),
            }
            outcomes = []
            for service in (b, a):
                answer = await service.client.post("/replays", json=asked)
                assert answer.status_code == 202, answer.text
                done = await service.finished(answer.json()["id"])
                assert done.state is ReplayState.COMPLETED
                outcomes.append((done.origin, done.counts))
            assert outcomes == [("b", Counts(delivered=2)), ("a", Counts(delivered=1))]
            assert sorted(a.event_ids) == ["at_a", "at_b_1", "at_b_2"]

    asyncio.run(scenario())


@ON_SQLITE
def test_the_twitter_api_uses_the_log_of_its_data_centre(both: tuple[Settings, Settings]) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            a, b = [await stack.enter_async_context(Service.running(each)) for each in both]
            webhook = a.webhook()
            await b.publish(webhook, at_b=-3 * MINUTE_MS)
            path = f"/1.1/account_activity/replay/webhooks/{webhook.id}/subscriptions/all.json"
            minutes = (f"{format_time(a.now_ms - n * MINUTE_MS):.16}" for n in (4, 1))
            dates = ["".join(filter(str.isdigit, minute)) for minute in minutes]
            params = {"from_date": dates[0], "to_date": dates[1]}
            answer = await b.client.post(path, params=params)
            assert answer.status_code == 202, answer.text
            done = await b.finished(answer.json()["job_id"])
            assert (done.origin, done.counts) == ("b", Counts(delivered=1))

    asyncio.run(scenario())


@ON_MARIADB
def test_a_late_event_is_read_from_its_own_log(both: tuple[Settings, Settings]) -> None:
    async def scenario() -> None:
        async with Service.running(both[0]) as a:
            webhook = a.webhook()
            await a.publish(webhook, **{f"new_{n}": -1_000 - n for n in range(10)})
            await a.publish(webhook, late=-2 * HOUR_MS)
            late = Window(a.now_ms - 2 * HOUR_MS, a.now_ms - 2 * HOUR_MS + 1)
            ends = [a.store.late_end_offset(0, late, origin=origin) for origin in "ab"]
            assert ends == [11, None]

    asyncio.run(scenario())


@pytest.fixture
def scene(
    tmp_path: Path, broker: BrokerProcess, database_url: str, receiver: ReceiverThread
) -> Iterator[LiveScene]:
    """The live path of data centre "here"; it ends before its receiver."""
    with LiveScene(tmp_path, broker.bootstrap_servers, database_url) as scene:
        scene.make()
        yield scene


def mirror_events(
    scene: LiveScene, webhook: Webhook, *records: dict[str, object], time_ms: int | None = None
) -> None:
    """Write events to `delivery_log` like a mirror of "elsewhere"."""
    headers = {"event-type": "follow.created", "origin": "elsewhere", "server": "there"}
    scene.produce(
        DELIVERY_LOG,
        [(webhook.id, {"event-id": each["id"], **headers}, b"{}") for each in records],
        time_ms=time_ms,
    )


def is_settled(scene: LiveScene, broker: BrokerProcess) -> bool:
    """Whether all deliveries are committed, without exceptions."""
    return not scene.uncommitted(deliverer.GROUP, DELIVERY_LOG) and not any(offset_metadata(broker))


def offset_metadata(broker: BrokerProcess) -> list[str]:
    """The metadata of the committed offsets: unsettled records below them."""
    return [place.metadata or "" for place in stored(broker)]


def committed(broker: BrokerProcess) -> list[int | None]:
    """The committed offsets of the group; None for partitions without one."""
    return [None if place.offset < 0 else place.offset for place in stored(broker)]


def stored(broker: BrokerProcess) -> list[TopicPartition]:
    """The committed offsets of the group, with metadata."""
    servers = broker.bootstrap_servers
    client = {"bootstrap.servers": servers, "group.id": deliverer.GROUP, "log_level": 0}
    with closing(Consumer(client)) as consumer:
        places = [TopicPartition(DELIVERY_LOG, each) for each in range(PARTITIONS)]
        return consumer.committed(places, DEADLINE_S)


@ON_SQLITE
def test_mirrored_events_are_not_delivered_and_local_ones_are(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    live = scene.live()
    mirror_events(scene, webhook, *events(0, 40))
    scene.owe(webhook, *events(40, 45))
    mirror_events(scene, webhook, *events(45, 50))
    outcomes = scene.until_outcomes(5)
    until(lambda: is_settled(scene, broker), "all is committed")
    assert sorted(receiver.taken) == ids(40, 45)
    assert {(each.event_id, each.outcome) for each in outcomes} == {
        (event_id, LiveOutcome.DELIVERED) for event_id in ids(40, 45)
    }
    assert scrape(live.metrics_port)[MIRRORED] == 45
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    assert scene.store.late_end_offset(partition, Window(0, now_ms()), origin="here") is None


@ON_SQLITE
def test_an_outcome_has_a_stable_digest_of_its_event(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    scene.live()
    scene.owe(webhook, event(1), event(1))
    found = {each.digest for each in scene.until_outcomes(2)}
    (record, _) = scene.read(DELIVERY_LOG)
    assert found == {lasting_digest("evt_1", record.value)}


@ON_MARIADB
def test_late_mirrored_events_are_recorded_for_local_replays(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    scene.live()
    late_ms = now_ms() - 2 * HOUR_MS
    scene.owe(webhook, *events(0, 3))
    mirror_events(scene, webhook, *events(3, 10), time_ms=late_ms)
    scene.owe(webhook, event(10))
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    window = Window(late_ms, late_ms + 1)
    until(
        lambda: scene.store.late_end_offset(partition, window, origin="here") == 10,
        "the late arrival is recorded",
    )
    until(lambda: is_settled(scene, broker), "all is committed")
    assert scene.store.late_end_offset(partition, window, origin="elsewhere") is None
    assert sorted(receiver.taken) == sorted([*ids(0, 3), "evt_10"])


@ON_SQLITE
def test_unrecorded_late_events_stay_unsettled_and_survive_a_crash(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread, database_url: str
) -> None:
    webhook = scene.webhook(receiver)
    live = scene.live()
    rename_notes(database_url, "late_arrivals", "away")
    late_ms = now_ms() - 2 * HOUR_MS
    mirror_events(scene, webhook, *events(0, 5), time_ms=late_ms)
    scene.owe(webhook, event(5))
    live.until_says("late-events-not-stored")
    scene.until_outcomes(1)
    assert receiver.taken == ["evt_5"]
    # The committed offset is beyond them, and its metadata has them, but not the one after.
    commit = PartitionProgress(6, range(5)).commit()
    until(
        lambda: (
            commit in [PartitionCommit(each.offset, each.metadata or "") for each in stored(broker)]
        ),
        "what is open is committed as open, and no more",
    )
    live.kill()
    rename_notes(database_url, "away", "late_arrivals")
    scene.live()
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    window = Window(late_ms, late_ms + 1)
    until(
        lambda: scene.store.late_end_offset(partition, window, origin="here") == 5,
        "the late arrival is recorded",
    )
    until(lambda: is_settled(scene, broker), "all is committed")
    assert receiver.taken == ["evt_5"]


@ON_SQLITE
def test_pending_late_arrivals_are_recorded_after_a_database_outage(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread, database_url: str
) -> None:
    webhook = scene.webhook(receiver)
    live = scene.live()
    rename_notes(database_url, "late_arrivals", "away")
    late_ms = now_ms() - 2 * HOUR_MS
    mirror_events(scene, webhook, *events(0, 5), time_ms=late_ms)
    live.until_says("late-events-not-stored")
    rename_notes(database_url, "away", "late_arrivals")
    until(lambda: is_settled(scene, broker), "all is committed")
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    window = Window(late_ms, late_ms + 1)
    assert scene.store.late_end_offset(partition, window, origin="here") == 5
    assert not receiver.webhooks


@ON_SQLITE
def test_reading_pauses_at_the_limit_of_pending_late_arrivals(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread, database_url: str
) -> None:
    webhook = scene.webhook(receiver)
    assert scene.live().stop() == 0
    rename_notes(database_url, "late_arrivals", "away")
    count, late_ms = WAITING_MAX + 10_000, now_ms() - 2 * HOUR_MS
    mirror_events(scene, webhook, *events(0, count), time_ms=late_ms)
    # All are there when it begins to read: a paused partition reports no newer end.
    live = scene.live()
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    lag = f'rewind_live_lag_records{{group="{deliverer.GROUP}",partition="{partition}"}}'

    def stands_still() -> bool:
        shown = scrape(live.metrics_port)
        unsettled, unread = shown["rewind_live_unsettled_records"], shown.get(lag, 0)
        # Everything that was read is pending, and the rest is still in the log.
        return unread > 0 and unsettled >= WAITING_MAX and unsettled + unread == count

    until(stands_still, "it reads no further")
    rename_notes(database_url, "away", "late_arrivals")
    until(lambda: is_settled(scene, broker), "all is committed")
    assert scrape(live.metrics_port)[MIRRORED] == count
    window = Window(late_ms, late_ms + 1)
    assert scene.store.late_end_offset(partition, window, origin="here") == count


@ON_SQLITE
def test_mirrored_events_are_matched_only_in_their_own_data_centre(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    live = scene.live()
    headers = {"event-id": "evt_1", "event-type": "x"}
    scene.produce(EVENTS, [(None, {**headers, "origin": "elsewhere"}, b"{}")])
    scene.publish(event(2))
    until(lambda: receiver.taken, "what was made here came")
    until(lambda: not scene.uncommitted(matcher.GROUP, EVENTS), "all is committed")
    assert receiver.taken == ["evt_2"]
    assert scrape(live.metrics_port)['rewind_live_events_total{result="mirrored"}'] == 1
    assert len(scene.read(DELIVERY_LOG)) == 1


@ON_MARIADB
def test_a_replay_finds_events_mirrored_before_the_first_start_of_the_live_path(
    both: tuple[Settings, Settings], tmp_path: Path, broker: BrokerProcess
) -> None:
    settings = both[0]

    async def scenario() -> None:
        async with Service.running(settings) as a:
            scene = LiveScene(tmp_path, broker.bootstrap_servers, settings.database, partitions=1)
            with scene:
                webhook = a.webhook()
                await a.publish(webhook, new=-1_000)
                mirror_events(scene, webhook, *events(0, 5), time_ms=a.now_ms - 2 * HOUR_MS)
                await asyncio.to_thread(scene.live, origin="a")
                done = await a.replay(webhook, -2 * HOUR_MS, -HOUR_MS)
                assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=5))
                done = await a.replay(webhook, -2_000, 0)
                assert done.counts == Counts(delivered=1)
                assert sorted(a.event_ids) == sorted([*ids(0, 5), "new"])

    asyncio.run(scenario())


@ON_MARIADB
def test_late_deliveries_of_any_data_centre_are_not_missing(
    both: tuple[Settings, Settings], tmp_path: Path, broker: BrokerProcess
) -> None:
    settings = both[0]

    async def scenario() -> None:
        async with Service.running(settings) as a:
            scene = LiveScene(tmp_path, broker.bootstrap_servers, settings.database, partitions=1)
            with scene:
                webhook, late_ms = a.webhook(), a.now_ms - 2 * HOUR_MS
                await asyncio.to_thread(scene.live, origin="a")
                await a.publish(webhook, new=0)
                await asyncio.to_thread(scene.until_outcomes, 1)
                await a.publish(webhook, late=-2 * HOUR_MS)
                await asyncio.to_thread(scene.until_outcomes, 2)
                mirror_events(scene, webhook, *events(0, 3), time_ms=late_ms)
                mirror_outcomes(scene, webhook, *ids(0, 2), time_ms=late_ms)
                late_window = Window(late_ms, late_ms + 1)
                await asyncio.to_thread(
                    until,
                    lambda: a.store.late_end_offset(0, late_window, origin="a") == 5,
                    "all late arrivals are recorded",
                )
                asked = NewReplay(
                    webhook.id,
                    Window(late_ms, late_ms + HOUR_MS),
                    ReplayOptions(only=Only.FAILED),
                    origin="a",
                )
                replay, _ = a.store.create_replay(asked)
                done = await a.finished(replay.id)
                assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
                assert sorted(a.event_ids) == ["evt_2", "late", "new"]

    asyncio.run(scenario())


def mirror_outcomes(scene: LiveScene, webhook: Webhook, *event_ids: str, time_ms: int) -> None:
    """Write outcomes like a mirror: "elsewhere" has delivered the events of `mirror_events`."""
    became = [
        DeliveryOutcome(
            partition=0,
            offset=number,
            event_id=event_id,
            outcome=LiveOutcome.DELIVERED,
            attempts=1,
            status=204,
            reason=None,
            time_ms=time_ms,
            digest=lasting_digest(event_id, b"{}"),
        )
        for number, event_id in enumerate(event_ids)
    ]
    headers = {"event-type": "follow.created", "origin": "elsewhere"}
    scene.produce(
        DELIVERY_OUTCOMES,
        [(webhook.id, {"event-id": e.event_id, **headers}, encode_outcome(e)) for e in became],
        time_ms=time_ms,
    )


def history_end(scene: LiveScene, webhook: Webhook) -> int | None:
    """The end offset of a replay of an old hour in the partition of a webhook."""
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    to_ms = now_ms() - 10 * HOUR_MS
    return scene.store.late_end_offset(partition, Window(to_ms - HOUR_MS, to_ms), origin="here")


@ON_SQLITE
def test_a_new_group_starts_after_earlier_events_are_recorded(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread, database_url: str
) -> None:
    webhook = scene.webhook(receiver)
    mirror_events(scene, webhook, *events(0, 5))
    rename_notes(database_url, "late_arrivals", "away")
    crashed = scene.live(launch_only=True)
    crashed.until_says("late-events-not-stored")
    crashed.kill()
    stopped = scene.live(launch_only=True)
    stopped.until_says("late-events-not-stored")
    assert stopped.stop() == 0
    assert "groups-not-left" not in stopped.output
    assert committed(broker) == [None] * PARTITIONS
    live = scene.live(launch_only=True)
    live.until_says("late-events-not-stored")
    rename_notes(database_url, "away", "late_arrivals")
    live.until_says(READY)
    assert history_end(scene, webhook) == 5
    assert None not in committed(broker)
    # It started at the end, and continues from there.
    scene.owe(webhook, event(5))
    scene.until_outcomes(1)
    assert receiver.taken == ["evt_5"]


@ON_SQLITE
def test_a_group_with_an_invalid_offset_restarts_and_records_earlier_events(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    mirror_events(scene, webhook, *events(0, 5))
    places = [TopicPartition(DELIVERY_LOG, each, 1_000) for each in range(PARTITIONS)]
    commit_offsets(broker.bootstrap_servers, deliverer.GROUP, places)
    scene.live()
    assert history_end(scene, webhook) == 5
    # Events on time are found without a record of late arrivals.
    partition = partition_for_key(webhook.id.encode(), PARTITIONS)
    recent = Window(now_ms() - MINUTE_MS, now_ms())
    assert scene.store.late_end_offset(partition, recent, origin="here") is None


@ON_SQLITE
def test_a_group_that_continues_records_nothing_again(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    live = scene.live()
    mirror_events(scene, webhook, *events(0, 5))
    scene.owe(webhook, event(5))
    scene.until_outcomes(1)
    until(lambda: is_settled(scene, broker), "all is committed")
    live.kill()
    scene.live()
    assert history_end(scene, webhook) is None


def rename_notes(database_url: str, before: str, after: str) -> None:
    """Rename the table of late arrivals, so that the live path cannot write to it."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {before} RENAME TO {after}"))
    engine.dispose()
