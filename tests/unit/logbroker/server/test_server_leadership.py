"""The cluster's views determine which partitions a broker serves."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from logbroker.config import BrokerConfig, LogConfig
from logbroker.errors import (
    NotLeaderOrFollower,
    RequestRefused,
    StorageFailed,
    UnknownTopicOrPartition,
)
from logbroker.records.record import NewRecord, encode_batch
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import TopicTable
from logbroker.server.housekeeping import FileDeletion
from logbroker.server.leadership import PartitionLeadership
from logbroker.server.loop import SocketLoop
from logbroker.server.membership import Step
from logbroker.server.partition import Partition, Partitions
from logbroker.server.worker_pool import WorkerPool
from logbroker.storage.identity import read_topic_id, write_topic_id
from logbroker.storage.log_directory import LogDirectory, Owner

HERE, THERE = 1, 2
BROKERS = {number: BrokerEndpoint(number, "127.0.0.1", 9000 + number) for number in (HERE, THERE)}
NO_BROKERS = ClusterView("cluster", None, brokers={}, topics=TopicTable())
FIRST, SECOND = UUID(int=1), UUID(int=2)


class Stage:
    """Partition leadership over a real data directory, with its callbacks recorded."""

    def __init__(
        self, path: Path, *topics: Topic, unreadable: frozenset[str] = frozenset()
    ) -> None:
        """Open the logs of these topics."""
        self.path = path
        self.loop = SocketLoop()
        self.disk = WorkerPool(self.loop, "disk", 1)
        self.logs = LogDirectory.claim(path)
        owners = {each.topic_id: Owner(each.name, LogConfig()) for each in topics}
        self.logs.load(owners.get, 0, unreadable)
        self.partitions = Partitions(NO_BROKERS)
        self.led: list[Partition] = []
        self.closed: list[tuple[Partition, RequestRefused]] = []
        self.leadership = PartitionLeadership(
            BrokerConfig(path, broker_id=HERE),
            self.logs,
            self.partitions,
            FileDeletion(self.loop, self.disk),
            self.led.append,
            lambda partition, reason: self.closed.append((partition, reason)),
        )

    def apply(
        self,
        *topics: Topic,
        brokers: Mapping[int, BrokerEndpoint] = BROKERS,
        unreadable: frozenset[str] = frozenset(),
    ) -> None:
        view = ClusterView("cluster", HERE, brokers, TopicTable.of(topics), unreadable=unreadable)
        run(self.leadership.apply_view(view))

    def reopen(self) -> None:
        for key in self.partitions.failed:
            run(self.leadership.reopen(*key, 0))

    def close(self) -> None:
        self.disk.close()
        self.logs.close()
        self.loop.close()

    @property
    def served(self) -> list[str]:
        return sorted(str(partition) for partition in self.partitions)

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.path.glob("*-[0-9]"))


def run(step: Step) -> None:
    for work in step:
        if work is not None:
            work()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Stage]:
    """A stage that could not open the log of a topic, which has one record."""
    first = Stage(tmp_path)
    first.apply(topic(HERE, HERE))
    append(first.partitions.get("events", 0), b"kept")
    first.close()
    (tmp_path / "events-0" / "leader-epoch-checkpoint").rename(tmp_path / "epochs")
    (tmp_path / "events-0" / "leader-epoch-checkpoint").mkdir()
    broken = Stage(tmp_path, topic(HERE, HERE))
    broken.apply(topic(HERE, HERE))
    assert broken.served == ["events-1"]
    yield broken
    broken.close()


def topic(*leaders: int, name: str = "events", topic_id: UUID = FIRST, **settings: str) -> Topic:
    named = {setting.replace("_", "."): value for setting, value in settings.items()}
    return Topic(name, topic_id, tuple((leader,) for leader in leaders), named)


def append(partition: Partition, value: bytes) -> int:
    batch = memoryview(bytearray(encode_batch([NewRecord(0, None, value)])))
    offset = partition.log.append(batch, 0)
    partition.log.write()
    return offset


def test_a_broker_serves_the_partitions_that_it_leads(stage: Stage) -> None:
    stage.apply(topic(HERE, THERE, HERE))
    assert stage.served == stage.folders == ["events-0", "events-2"]
    assert [str(partition) for partition in stage.led] == stage.served
    assert read_topic_id(stage.path / "events-2") == FIRST


def test_partitions_of_other_brokers_and_unknown_ones_have_different_errors(
    stage: Stage,
) -> None:
    stage.apply(topic(HERE, THERE))
    assert stage.partitions.get("events", 0).log.partition == 0
    with pytest.raises(NotLeaderOrFollower, match="its leader is broker 2"):
        stage.partitions.get("events", 1)
    for name, number in (("events", 2), ("events", -1), ("others", 0)):
        with pytest.raises(UnknownTopicOrPartition):
            stage.partitions.get(name, number)


def test_a_broker_outside_the_cluster_leads_nothing_and_keeps_its_logs(
    stage: Stage,
) -> None:
    stage.apply(topic(HERE, HERE))
    before = stage.partitions.get("events", 0)
    append(before, b"kept")

    stage.apply(topic(HERE, HERE), brokers={THERE: BROKERS[THERE]})
    assert stage.served == []
    assert not before.is_open
    assert [type(reason) for _, reason in stage.closed] == [NotLeaderOrFollower] * 2
    with pytest.raises(NotLeaderOrFollower, match="it has no leader"):
        stage.partitions.get("events", 0)

    stage.apply(topic(HERE, HERE))
    again = stage.partitions.get("events", 0)
    assert again is not before
    assert again.log is before.log
    assert append(again, b"next") == 1


def test_other_brokers_join_and_leave_without_a_change_here(stage: Stage) -> None:
    stage.apply(topic(HERE, THERE))
    before = stage.partitions.get("events", 0)
    stage.apply(topic(HERE, THERE), brokers={HERE: BROKERS[HERE]})
    stage.apply(topic(HERE, THERE))
    assert stage.partitions.get("events", 0) is before
    assert before.is_open
    assert len(stage.led) == 1
    assert stage.closed == []


def test_a_deleted_topic_is_closed_and_its_folders_are_renamed(stage: Stage) -> None:
    stage.apply(topic(HERE, HERE), topic(HERE, name="other", topic_id=SECOND))
    stage.apply(topic(HERE, name="other", topic_id=SECOND))
    assert stage.served == stage.folders == ["other-0"]
    assert [type(reason) for _, reason in stage.closed] == [UnknownTopicOrPartition] * 2
    assert len(list(stage.path.glob("events-*-delete"))) == 2


def test_a_topic_recreated_between_two_views_is_empty(stage: Stage) -> None:
    stage.apply(topic(HERE, HERE))
    before = stage.partitions.get("events", 0)
    append(before, b"old")
    stage.apply(topic(HERE, THERE, topic_id=SECOND))
    assert stage.served == stage.folders == ["events-0"]
    assert not before.is_open
    assert append(stage.partitions.get("events", 0), b"new") == 0
    assert read_topic_id(stage.path / "events-0") == SECOND


def test_a_topic_deleted_while_the_broker_was_outside_the_cluster_is_removed(
    stage: Stage,
) -> None:
    stage.apply(topic(HERE))
    stage.apply(topic(HERE), brokers={})
    stage.apply(brokers={})
    assert stage.folders == []
    assert stage.logs.logs == {}


def test_a_topic_with_unreadable_metadata_is_not_served_and_keeps_its_data(stage: Stage) -> None:
    stage.apply(topic(HERE))
    before = stage.partitions.get("events", 0)
    append(before, b"kept")
    stage.apply(unreadable=frozenset({"events"}))
    assert stage.served == []
    assert stage.folders == ["events-0"]
    with pytest.raises(UnknownTopicOrPartition):
        stage.partitions.get("events", 0)
    stage.apply(topic(HERE))
    assert append(stage.partitions.get("events", 0), b"next") == 1


def test_a_topic_recreated_while_unreadable_is_empty(stage: Stage) -> None:
    stage.apply(topic(HERE))
    append(stage.partitions.get("events", 0), b"old")
    stage.apply(unreadable=frozenset({"events"}))
    stage.apply(topic(HERE, topic_id=SECOND))
    assert append(stage.partitions.get("events", 0), b"new") == 0


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Stage]:
    """A stage that could not read the metadata of a topic at its start; its log has one record."""
    first = Stage(tmp_path)
    first.apply(topic(HERE))
    append(first.partitions.get("events", 0), b"kept")
    first.close()
    unread = Stage(tmp_path, unreadable=frozenset({"events"}))
    unread.apply(unreadable=frozenset({"events"}))
    assert unread.served == []
    yield unread
    unread.close()


def test_a_topic_whose_metadata_was_unreadable_at_the_start_is_served_without_a_restart(
    unread: Stage, tmp_path: Path
) -> None:
    checkpoint = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert checkpoint.splitlines()[2:] == ["events 0 1"]
    unread.apply(topic(HERE))
    assert append(unread.partitions.get("events", 0), b"next") == 1
    assert unread.logs.unopened == {}


def test_a_topic_recreated_while_its_metadata_was_unreadable_at_the_start_is_empty(
    unread: Stage,
) -> None:
    unread.apply(topic(HERE, topic_id=SECOND))
    assert append(unread.partitions.get("events", 0), b"new") == 0
    assert unread.folders == ["events-0"]
    assert read_topic_id(unread.path / "events-0") == SECOND


def test_new_partitions_and_settings_reach_the_logs(stage: Stage) -> None:
    stage.apply(topic(HERE))
    before = stage.partitions.get("events", 0)
    grown = topic(HERE, THERE, HERE, retention_ms="5000")
    stage.apply(grown)
    assert stage.served == ["events-0", "events-2"]
    assert stage.partitions.get("events", 0) is before
    assert before.topic is grown
    assert {partition.log.config.retention_ms for partition in stage.partitions} == {5_000}


def test_settings_changed_while_the_broker_was_down_apply_when_it_leads_again(
    stage: Stage,
) -> None:
    stage.apply(topic(HERE))
    stage.apply(topic(HERE), brokers={})
    stage.apply(topic(HERE, retention_ms="5000"), brokers={})
    stage.apply(topic(HERE, retention_ms="5000"))
    assert stage.partitions.get("events", 0).log.config.retention_ms == 5_000


def test_unknown_settings_do_not_stop_the_broker(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.apply(topic(HERE, newer_setting="on", retention_ms="5000"))
    assert stage.served == ["events-0"]
    assert stage.partitions.get("events", 0).log.config.retention_ms == 5_000
    assert "invalid settings are ignored topic=events" in caplog.text


def test_a_folder_that_cannot_be_created_is_a_storage_error_until_the_topic_is_deleted(
    stage: Stage,
) -> None:
    (stage.path / "events-0").write_text("in the way")
    refused = topic(HERE, HERE)
    stage.apply(refused)
    assert stage.served == ["events-1"]
    with pytest.raises(StorageFailed, match="events-0 cannot be created"):
        stage.partitions.get("events", 0)
    assert stage.partitions.failure_of(refused) is not None
    (stage.path / "events-0").unlink()
    stage.apply(replace(refused, topic_id=SECOND))
    assert stage.served == ["events-0", "events-1"]
    assert stage.partitions.failure_of(refused) is None


def test_a_log_is_opened_again_once_the_disk_works(broken: Stage, tmp_path: Path) -> None:
    broken.reopen()
    assert broken.served == ["events-1"]
    (tmp_path / "events-0" / "leader-epoch-checkpoint").rmdir()
    (tmp_path / "epochs").rename(tmp_path / "events-0" / "leader-epoch-checkpoint")
    broken.reopen()
    assert broken.served == ["events-0", "events-1"]
    assert append(broken.partitions.get("events", 0), b"next") == 1
    assert broken.logs.unopened == {}


def test_a_topic_with_a_log_that_cannot_be_opened_can_be_created_again(broken: Stage) -> None:
    broken.apply()
    assert broken.folders == []
    broken.apply(topic(HERE, HERE, topic_id=SECOND))
    assert broken.served == broken.folders == ["events-0", "events-1"]
    assert append(broken.partitions.get("events", 0), b"first") == 0
    broken.reopen()
    assert broken.partitions.failed == []


def test_a_folder_that_could_not_be_created_is_created_later(stage: Stage) -> None:
    (stage.path / "events-0").write_text("in the way")
    stage.apply(topic(HERE))
    stage.reopen()
    assert stage.served == []
    (stage.path / "events-0").unlink()
    stage.reopen()
    assert stage.served == ["events-0"]


def test_a_log_that_fails_is_not_opened_for_another_topic(broken: Stage, tmp_path: Path) -> None:
    (tmp_path / "events-0" / "leader-epoch-checkpoint").rmdir()
    write_topic_id(tmp_path / "events-0", SECOND)
    broken.reopen()
    assert broken.served == ["events-1"]


def test_a_log_of_a_topic_that_was_deleted_meanwhile_is_not_opened(broken: Stage) -> None:
    (key,) = broken.partitions.failed
    broken.apply()
    assert list(broken.leadership.reopen(*key, 0)) == []
