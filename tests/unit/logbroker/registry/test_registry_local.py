import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from logbroker.errors import (
    ConfigurationError,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    RequestRefused,
    StorageFailed,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from logbroker.registry.local import LocalRegistry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "registry.json"


@pytest.fixture
def registry(path: Path) -> LocalRegistry:
    return LocalRegistry.open(path, 0)


def reopened(path: Path) -> LocalRegistry:
    return LocalRegistry.open(path, 0)


def test_the_cluster_keeps_its_id(registry: LocalRegistry, path: Path) -> None:
    assert len(base64.urlsafe_b64decode(registry.cluster_id + "==")) == 16
    assert reopened(path).cluster_id == registry.cluster_id


def test_two_folders_are_two_clusters(tmp_path: Path) -> None:
    ids = {LocalRegistry.open(tmp_path / str(n) / "r.json", 0).cluster_id for n in range(100)}
    assert len(ids) == 100
    assert not any(text.startswith("-") for text in ids)


def test_topics_outlive_a_restart(registry: LocalRegistry, path: Path) -> None:
    first = registry.create_topic("events", 3, {"retention.ms": "1000"})
    second = registry.create_topic("delivery_log", 8, {})
    assert dict(reopened(path).topics) == {"events": first, "delivery_log": second}
    assert reopened(path).topic("events").settings == {"retention.ms": "1000"}
    assert reopened(path).topic_by_id(second.topic_id) == second


def test_a_topic_made_again_has_another_id(registry: LocalRegistry) -> None:
    before = registry.create_topic("t", 1, {})
    registry.begin_deletion("t")
    registry.end_deletion("t")
    after = registry.create_topic("t", 1, {})
    assert before.topic_id != after.topic_id
    with pytest.raises(UnknownTopicId):
        registry.topic_by_id(before.topic_id)


@pytest.mark.parametrize(
    ("name", "partitions", "settings", "refusal"),
    [
        ("a/b", 1, {}, InvalidTopic),
        ("there.is", 1, {}, InvalidTopic),
        ("there_is", 1, {}, TopicAlreadyExists),
        ("new", 0, {}, InvalidPartitions),
        ("new", -1, {}, InvalidPartitions),
        ("new", 1, {"cleanup.policy": "compact"}, InvalidConfig),
        ("new", 1, {"segment.bytes": "5"}, InvalidConfig),
    ],
)
def test_a_bad_topic_is_refused_and_leaves_nothing(
    registry: LocalRegistry,
    path: Path,
    name: str,
    partitions: int,
    settings: dict[str, str],
    refusal: type[RequestRefused],
) -> None:
    registry.create_topic("there_is", 1, {})
    before = path.read_bytes()
    for ask in (registry.check_new_topic, registry.create_topic):
        with pytest.raises(refusal):
            ask(name, partitions, settings)
    assert list(registry.topics) == ["there_is"]
    assert path.read_bytes() == before


def test_a_check_alone_creates_nothing(registry: LocalRegistry) -> None:
    registry.check_new_topic("t", 1, {})
    with pytest.raises(UnknownTopicOrPartition, match="'t'"):
        registry.topic("t")


def test_a_deletion_that_has_begun_is_hidden_and_found_again(
    registry: LocalRegistry, path: Path
) -> None:
    topic = registry.create_topic("t", 1, {})
    registry.begin_deletion("t")
    for seen in (registry, reopened(path)):
        assert "t" not in seen.topics
        assert seen.deleting() == [replace(topic, deleting=True)]
        with pytest.raises(UnknownTopicId):
            seen.topic_by_id(topic.topic_id)
        with pytest.raises(TopicAlreadyExists):
            seen.create_topic("t", 1, {})


def test_a_deletion_that_has_ended_leaves_nothing(registry: LocalRegistry, path: Path) -> None:
    registry.create_topic("t", 1, {})
    registry.begin_deletion("t")
    registry.end_deletion("t")
    assert reopened(path).deleting() == []
    assert not reopened(path).topics


def test_nobody_deletes_what_is_not_there(registry: LocalRegistry) -> None:
    with pytest.raises(UnknownTopicOrPartition):
        registry.begin_deletion("t")


def test_a_topic_only_grows(registry: LocalRegistry, path: Path) -> None:
    before = registry.create_topic("t", 2, {})
    for partitions in (1, 2):
        with pytest.raises(InvalidPartitions, match="above 2"):
            registry.grow_topic("t", partitions)
    assert registry.grow_topic("t", 5) == replace(before, partitions=5)
    assert reopened(path).topic("t").partitions == 5


def test_new_settings_take_the_place_of_all_old_ones(registry: LocalRegistry, path: Path) -> None:
    registry.create_topic("t", 1, {"retention.ms": "1", "segment.ms": "2"})
    registry.change_settings("t", {"retention.ms": "3"})
    assert reopened(path).topic("t").settings == {"retention.ms": "3"}
    with pytest.raises(InvalidConfig, match="flush"):
        registry.change_settings("t", {"flush.ms": "soon"})
    assert registry.topic("t").settings == {"retention.ms": "3"}


def test_settings_of_a_topic_cannot_be_changed_behind_the_registry(
    registry: LocalRegistry, path: Path
) -> None:
    mine = {"retention.ms": "1"}
    topic = registry.create_topic("t", 1, mine)
    mine["retention.ms"] = "2"
    assert topic.settings == {"retention.ms": "1"}
    for seen in (topic, reopened(path).topic("t")):
        with pytest.raises(TypeError):
            seen.settings["retention.ms"] = "2"  # type: ignore[index]


def test_producer_ids_are_never_given_twice(registry: LocalRegistry, path: Path) -> None:
    given = [*registry.allocate_producer_ids(1000), *registry.allocate_producer_ids(1)]
    given += reopened(path).allocate_producer_ids(1000)
    assert given == list(range(2001))


def test_a_kill_wastes_producer_ids_and_repeats_none(path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; "
        "from logbroker.registry.local import LocalRegistry; "
        "r = LocalRegistry.open(Path(sys.argv[1]), 0)\n"
        "while True: os.write(1, b'%d\\n' % r.allocate_producer_ids(10).stop)"
    )
    last = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(20):
                stop = int(process.stdout.readline())
                assert stop > last
                last = stop
            process.send_signal(signal.SIGKILL)
            last = max([last, *map(int, process.stdout.read().split())])
    assert reopened(path).allocate_producer_ids(1).start >= last


def test_a_half_written_successor_is_not_looked_at(registry: LocalRegistry, path: Path) -> None:
    topic = registry.create_topic("t", 1, {})
    path.with_name("registry.json.new").write_bytes(path.read_bytes()[:40])
    assert reopened(path).topic("t") == topic
    reopened(path).allocate_producer_ids(1)
    assert not path.with_name("registry.json.new").exists()


def test_a_disk_that_refuses_leaves_the_registry_as_it_was(
    registry: LocalRegistry, path: Path
) -> None:
    topic = registry.create_topic("t", 1, {})
    before = path.read_bytes()
    obstacle = path.with_name("registry.json.new")
    obstacle.mkdir()
    changes: list[Callable[[], object]] = [
        lambda: registry.create_topic("u", 1, {}),
        lambda: registry.grow_topic("t", 2),
        lambda: registry.begin_deletion("t"),
        lambda: registry.allocate_producer_ids(1),
    ]
    for change in changes:
        with pytest.raises(StorageFailed, match=r"registry.json cannot be written"):
            change()
    assert dict(registry.topics) == {"t": topic}
    assert path.read_bytes() == before
    obstacle.rmdir()
    assert registry.allocate_producer_ids(1) == range(1)


def test_the_folder_of_another_broker_is_refused(registry: LocalRegistry, path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"broker_id is 7; .* belongs to broker 0"):
        LocalRegistry.open(path, 7)


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
def test_a_file_that_is_no_registry_is_refused_and_kept(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"registry .*registry.json cannot be opened"):
        LocalRegistry.open(path, 0)
    assert path.read_bytes() == content


def test_a_document_without_one_of_its_fields_is_refused(
    registry: LocalRegistry, path: Path
) -> None:
    registry.create_topic("t", 1, {})
    whole = json.loads(path.read_bytes())
    for field in whole:
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != field}))
        with pytest.raises(ConfigurationError):
            LocalRegistry.open(path, 0)
    for field in whole["topics"][0]:
        topic = {k: v for k, v in whole["topics"][0].items() if k != field}
        path.write_text(json.dumps({**whole, "topics": [topic]}))
        with pytest.raises(ConfigurationError):
            LocalRegistry.open(path, 0)


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError):
        LocalRegistry.open(tmp_path / "file" / "registry.json", 0)


def test_an_unknown_id_is_refused_by_its_text(registry: LocalRegistry) -> None:
    with pytest.raises(UnknownTopicId, match="00000000-0000-0000-0000-000000000000"):
        registry.topic_by_id(UUID(int=0))


def test_no_descriptor_stays_open(registry: LocalRegistry) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # descriptors, not files
    registry.create_topic("t", 1, {})
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
