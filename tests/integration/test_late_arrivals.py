"""Events that are published long after their event time are found by replays."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from app.config import Settings
from app.domain.model import Counts, OffsetRange
from app.domain.states import ReplayState
from app.domain.windows import MINUTE_MS
from app.log.event_records import EventRecords
from app.services.event_index import EventIndexer
from app.store.event_index import EventIndex
from tests.support.database.migrated import make_migrated
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.service.replay_service import Service

pytestmark = pytest.mark.long

HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def settings(tmp_path: Path, broker: BrokerProcess, database_url: str) -> Settings:
    make_migrated(database_url)
    return Settings(
        data_dir=tmp_path,
        database=database_url,
        bootstrap_servers=broker.bootstrap_servers,
        partitions=1,
        allow_private_targets=True,
        poll_interval_s=0.02,
    )


def test_a_replay_finds_an_old_event_published_after_newer_ones(settings: Settings) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            other, webhook = service.webhook(), service.webhook()
            await service.publish(webhook, new_1=-2_000, new_2=-1_000)
            await service.publish(other, other=-2 * HOUR_MS)
            await service.publish(webhook, late=-2 * HOUR_MS)
            await service.publish(webhook, new_3=-500)

            done = await service.replay(webhook, -2 * HOUR_MS - MINUTE_MS, -2 * HOUR_MS + 1)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
            assert done.offsets == OffsetRange(0, 0, 4)
            assert service.event_ids == ["late"]

    asyncio.run(scenario())


def test_a_window_without_late_events_reads_no_further(
    settings: Settings,
) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            await service.publish(webhook, old=-4 * HOUR_MS)
            await service.publish(webhook, new=-1_000)
            await service.publish(webhook, late=-2 * HOUR_MS)

            done = await service.replay(webhook, -4 * HOUR_MS, -3 * HOUR_MS)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
            assert done.offsets == OffsetRange(0, 0, 1)
            done = await service.replay(webhook, -2 * HOUR_MS + 1, -HOUR_MS)
            assert (done.offsets, done.counts) == (OffsetRange(0, 1, 1), Counts())
            assert service.event_ids == ["old"]

    asyncio.run(scenario())


def test_a_slightly_late_event_is_found_after_one_from_the_future(settings: Settings) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            await service.publish(webhook, ahead=4 * MINUTE_MS)
            await service.publish(webhook, behind=-9 * MINUTE_MS)

            done = await service.replay(webhook, -10 * MINUTE_MS, -8 * MINUTE_MS)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=1))
            assert service.event_ids == ["behind"]

    asyncio.run(scenario())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_replay_skips_what_follows_a_window_that_has_just_ended(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "app.replay_workers")
    later = {f"later_{number}": -2 * MINUTE_MS + number for number in range(12_000)}

    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            await service.publish(webhook, first=-4 * MINUTE_MS, second=-3 * MINUTE_MS - 1)
            names = list(later)
            for start in range(0, len(names), 1_000):
                batch = {name: later[name] for name in names[start : start + 1_000]}
                await service.publish(webhook, **batch)
            await asyncio.to_thread(index_all, settings, service)
            # An event on time that is not indexed yet.
            await service.publish(webhook, third=-3 * MINUTE_MS - 5_000)

            done = await service.replay(webhook, -5 * MINUTE_MS, -3 * MINUTE_MS)
            assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=3))
            assert done.offsets == OffsetRange(0, 0, 12_003)
            assert service.event_ids == ["first", "second", "third"]

    asyncio.run(scenario())
    (skipping,) = [each for each in caplog.records if each.message == "skipping"]
    assert vars(skipping)["offsets"] == "0:2-12002"


def index_all(settings: Settings, service: Service) -> None:
    index = EventIndex(service.store.database, settings.origin)
    with closing(EventRecords(settings)) as records:
        indexer = EventIndexer(
            service.store, index, records, settings.retention_ms, unindexed_min=1
        )
        while indexer.index_new().unindexed:
            pass


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_late_events_are_accepted_only_if_they_are_recorded(settings: Settings) -> None:
    async def scenario() -> None:
        async with Service.running(settings) as service:
            webhook = service.webhook()
            service.lose_notes()
            assert (await service.post(webhook, {"on_time": -1_000})).status_code == 202
            refused = await service.post(webhook, {"new": -1_000, "late": -HOUR_MS})
            assert refused.status_code == 503
            assert refused.json()["unavailable"] == ["database"]

    asyncio.run(scenario())
