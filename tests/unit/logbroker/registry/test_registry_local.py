import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from logbroker.errors import ConfigurationError, StorageFailed
from logbroker.groups.stored import (
    CommittedOffset,
    StoredGroup,
    StoredMembership,
    TopicPartition,
)
from logbroker.registry.cluster import BrokerEndpoint, ClusterView, coordination_slot
from logbroker.registry.local.registry import LocalRegistry
from logbroker.registry.registry import PlacedTopic

ALONE = ((0,),)
MEMBERSHIP = StoredMembership(1, "consumer", None, None, ())


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def path(data_dir: Path) -> Path:
    return data_dir / "registry.json"


@pytest.fixture
def registry(data_dir: Path) -> LocalRegistry:
    return LocalRegistry.open(data_dir, 0)


def write_snapshot_next(registry: LocalRegistry) -> None:
    """Let the next change write a snapshot instead of appending to the journal."""
    registry._files._journal_bytes = None


def without_journal(path: Path) -> dict[str, Any]:
    """The document of a snapshot as older brokers wrote it."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    del document["journal"]
    return document | {"version": 1}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_two_folders_are_two_clusters(tmp_path: Path) -> None:
    ids = {LocalRegistry.open(tmp_path / str(n), 0).view.cluster_id for n in range(100)}
    assert len(ids) == 100
    assert not any(text.startswith("-") for text in ids)


def test_a_broker_that_has_not_joined_leads_nothing(registry: LocalRegistry) -> None:
    topic = registry.create_topic("t", ALONE, {})
    assert registry.view.leader(topic, 0) is None
    assert registry.view.controller_id is None
    assert registry.view.coordinator("g") is None


def test_a_refused_topic_leaves_the_file_as_it_was(registry: LocalRegistry, path: Path) -> None:
    registry.create_topic("t", ALONE, {})
    before = contents(path.parent)
    with pytest.raises(Exception, match="allowed is 1 to 249"):
        registry.create_topic("a/b", ALONE, {})
    assert contents(path.parent) == before


def test_topics_created_together_are_one_change(registry: LocalRegistry) -> None:
    views: list[ClusterView] = []
    registry.join(BrokerEndpoint(0, "127.0.0.1", 9092), views.append)
    registry.create_topics([PlacedTopic(f"t{number}", ALONE, {}) for number in range(100)])
    assert [len(view.topics) for view in views] == [0, 100]


def test_the_file_is_indented_json(registry: LocalRegistry, path: Path) -> None:
    assert path.read_text() == json.dumps(json.loads(path.read_text()), indent=1) + "\n"
    registry.create_topic("t", ALONE, {})
    registry.create_topic("u", ALONE * 2, {"retention.ms": "5", "cleanup.policy": "compact"})
    registry.grow_topic("t", ALONE * 3)
    registry.delete_topic("u")
    write_snapshot_next(registry)
    registry.create_topic("u", ALONE, {})
    text = path.read_text()
    assert text == json.dumps(json.loads(text), indent=1) + "\n"
    topics = json.loads(text)["topics"]
    assert [(topic["name"], topic["partitions"]) for topic in topics] == [("t", 3), ("u", 1)]
    assert topics[1]["settings"] == {}


@pytest.mark.processes
def test_a_kill_wastes_producer_ids_and_repeats_none(data_dir: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; "
        "from logbroker.registry.local.registry import LocalRegistry; "
        "r = LocalRegistry.open(Path(sys.argv[1]), 0)\n"
        "while True: os.write(1, b'%d\\n' % r.allocate_producer_ids(10).stop)"
    )
    last = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(data_dir)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(20):
                stop = int(process.stdout.readline())
                assert stop > last
                last = stop
            process.send_signal(signal.SIGKILL)
            last = max([last, *map(int, process.stdout.read().split())])
    assert LocalRegistry.open(data_dir, 0).allocate_producer_ids(1).start >= last


@pytest.mark.processes
def test_a_kill_leaves_each_group_as_it_was_or_as_it_became(data_dir: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; "
        "from logbroker.groups.stored import CommittedOffset; "
        "from logbroker.registry.local.registry import LocalRegistry; "
        "r = LocalRegistry.open(Path(sys.argv[1]), 0)\n"
        "for n in range(int(sys.argv[2]), 1 << 40):\n"
        "    r.commit_offsets('g', {('t', p): CommittedOffset(n) for p in range(50)})\n"
        "    os.write(1, b'%d\\n' % n)"
    )
    last = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(data_dir), str(last)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(20):
                last = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            last = max([last, *map(int, process.stdout.read().split())])
        (group,) = LocalRegistry.open(data_dir, 0).load_groups(coordination_slot("g"))
        (offset,) = {committed.offset for committed in group.offsets.values()}
        assert offset in (last, last + 1)


def test_a_half_written_successor_is_not_looked_at(
    registry: LocalRegistry, data_dir: Path, path: Path
) -> None:
    topic = registry.create_topic("t", ALONE, {})
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    write_snapshot_next(registry)
    registry.allocate_producer_ids(1)
    half = path.with_name("registry.json.tmp")
    half.write_bytes(path.read_bytes()[:40])
    (group,) = (data_dir / "groups").glob("*.json")
    group.with_name(group.name + ".tmp").write_bytes(group.read_bytes()[:10])
    reopened = LocalRegistry.open(data_dir, 0)
    assert reopened.view.topic("t") == topic
    assert len(reopened.load_groups(coordination_slot("g"))) == 1
    write_snapshot_next(reopened)
    reopened.allocate_producer_ids(1)
    assert not half.exists()


def test_a_disk_that_refuses_leaves_the_topics_as_they_were(
    registry: LocalRegistry, path: Path
) -> None:
    topic = registry.create_topic("t", ALONE, {})
    (journal,) = path.parent.glob("*.journal")
    journal.rename(kept := journal.with_suffix(".kept"))
    journal.mkdir()
    obstacle = path.with_name("registry.json.tmp")
    obstacle.mkdir()
    before = contents(path.parent)
    changes: list[Callable[[], object]] = [
        lambda: registry.create_topic("u", ALONE, {}),
        lambda: registry.grow_topic("t", ALONE * 2),
        lambda: registry.delete_topic("t"),
        lambda: registry.allocate_producer_ids(1),
    ]
    for change in changes:
        with pytest.raises(StorageFailed, match=r"registry.json cannot be written"):
            change()
    assert dict(registry.view.topics) == {"t": topic}
    assert contents(path.parent) == before
    journal.rmdir()
    kept.rename(journal)
    obstacle.rmdir()
    assert dict(LocalRegistry.open(path.parent, 0).view.topics) == {"t": topic}
    assert registry.allocate_producer_ids(1) == range(1)
    assert dict(LocalRegistry.open(path.parent, 0).view.topics) == {"t": topic}


def test_a_disk_that_refuses_leaves_a_group_as_it_was(
    registry: LocalRegistry, data_dir: Path
) -> None:
    before = StoredGroup("g", MEMBERSHIP, {("t", 0): CommittedOffset(1)})
    registry.store_membership("g", MEMBERSHIP)
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    (file,) = (data_dir / "groups").iterdir()
    obstacle = file.with_name(file.name + ".tmp")
    obstacle.mkdir()
    with pytest.raises(StorageFailed, match="group 'g' cannot be written"):
        registry.commit_offsets("g", {("t", 0): CommittedOffset(2)})
    for seen in (registry, LocalRegistry.open(data_dir, 0)):
        assert seen.load_groups(coordination_slot("g")) == [before]


def test_the_folder_of_another_broker_is_refused(registry: LocalRegistry, data_dir: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"broker_id is 7; .* belongs to broker 0"):
        LocalRegistry.open(data_dir, 7)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"null",
        b'{"version": 1}',
        b"\xff\xfe",
        b'{"version": 2, "topics": []}',
    ],
)
def test_a_malformed_registry_file_is_rejected_and_kept(
    data_dir: Path, path: Path, content: bytes
) -> None:
    data_dir.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"registry .*registry.json cannot be opened"):
        LocalRegistry.open(data_dir, 0)
    assert path.read_bytes() == content


def test_a_group_file_without_times_was_stored_at_its_last_change(
    registry: LocalRegistry, data_dir: Path
) -> None:
    registry.store_membership("g", MEMBERSHIP)
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    (file,) = (data_dir / "groups").iterdir()
    fields = json.loads(file.read_bytes())
    del fields["membership_ms"], fields["committed_ms"]
    file.write_text(json.dumps(fields))
    os.utime(file, (1_000, 1_000))
    (group,) = LocalRegistry.open(data_dir, 0).load_groups(coordination_slot("g"))
    assert group.membership is not None
    assert group.membership.stored_ms == group.offsets["t", 0].committed_ms == 1_000_000


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"null", b'{"version": 1}', b"\xff\xfe", b'{"version": 2}']
)
def test_a_malformed_group_file_is_rejected_by_name_and_kept(
    registry: LocalRegistry, data_dir: Path, content: bytes
) -> None:
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    (file,) = (data_dir / "groups").iterdir()
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{file.name} is not a valid consumer group"):
        LocalRegistry.open(data_dir, 0)
    assert file.read_bytes() == content


def test_a_document_without_one_of_its_fields_is_refused(
    registry: LocalRegistry, data_dir: Path, path: Path
) -> None:
    write_snapshot_next(registry)
    registry.create_topic("t", ALONE, {})
    whole = json.loads(path.read_bytes())
    for field in whole:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != field}))
        with pytest.raises(ConfigurationError):
            LocalRegistry.open(data_dir, 0)
    for field in whole["topics"][0]:
        topic = {k: v for k, v in whole["topics"][0].items() if k != field}
        path.write_text(json.dumps({**whole, "topics": [topic]}))
        with pytest.raises(ConfigurationError):
            LocalRegistry.open(data_dir, 0)


def test_a_topic_whose_deletion_an_older_broker_began_is_gone(
    registry: LocalRegistry, data_dir: Path, path: Path
) -> None:
    registry.create_topic("kept", ALONE, {})
    write_snapshot_next(registry)
    registry.create_topic("gone", ALONE, {})
    document = without_journal(path)
    for topic in document["topics"]:
        topic["deleting"] = topic["name"] == "gone"
    path.write_text(json.dumps(document))
    assert list(LocalRegistry.open(data_dir, 0).view.topics) == ["kept"]


def test_an_uncreatable_directory_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError):
        LocalRegistry.open(tmp_path / "file" / "data", 0)


def test_no_descriptor_stays_open(registry: LocalRegistry, data_dir: Path) -> None:
    before = open_files(data_dir)
    registry.create_topic("t", ALONE, {})
    registry.commit_offsets("g", {("t", 0): CommittedOffset(1)})
    assert open_files(data_dir) == before


def open_files(folder: Path) -> list[str]:
    """What this process has open in a folder; other threads of the tests have files elsewhere."""
    opened = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            opened.append(os.readlink(descriptor))  # noqa: PTH115  # a socket is no path
    return sorted(path for path in opened if path.startswith(str(folder)))


class UnsearchableList(list[TopicPartition]):
    """A list whose elements are found by iteration only."""

    def __contains__(self, wanted: object) -> bool:
        raise AssertionError("a search for each offset takes quadratic time")


def test_many_offsets_are_deleted_in_linear_time(registry: LocalRegistry) -> None:
    places = [("t", number) for number in range(3)]
    registry.commit_offsets("g", {place: CommittedOffset(1) for place in places})
    registry.delete_offsets("g", UnsearchableList(places[:2]))
    (group,) = registry.load_groups(coordination_slot("g"))
    assert list(group.offsets) == places[2:]
