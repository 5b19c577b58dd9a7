import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from logbroker.config import LogConfig
from logbroker.errors import ConfigurationError, DataDirectoryInUse, StorageFailed
from logbroker.storage.checkpoints import OffsetCheckpoint
from logbroker.storage.identity import read_topic_id, write_topic_id
from logbroker.storage.log_directory import LogDirectory, NewLog
from logbroker.storage.partition_log import PartitionLog
from tests.unit.logbroker.storage.storage_content import (
    BASE_MS,
    TOPIC_ID,
    append_all,
    batch,
    make_visible,
    open_directory,
    values_of,
)

K = TypeVar("K")
V = TypeVar("V")

CONFIG = LogConfig(segment_bytes=1024)


TOPICS = {"a": UUID(int=1), "b-1": UUID(int=2)}


def opened(path: Path, topics: Mapping[str, UUID] = TOPICS) -> LogDirectory:
    return open_directory(path, topics, CONFIG)


def filled(path: Path) -> LogDirectory:
    """Topic `a` with partitions 0 and 1, topic `b-1` with partition 0, two segments each."""
    directory = opened(path)
    for topic, partition in (("a", 0), ("a", 1), ("b-1", 0)):
        log = directory.create(topic, partition, TOPICS[topic], CONFIG)
        append_all(log, [batch(b"%d" % number + b"." * 400) for number in range(4)])
        make_visible(log)
    return directory


def delete(directory: LogDirectory, topic: str, partitions: Iterable[int]) -> list[Path]:
    """Delete logs of a topic, whose renamed folders are returned."""
    return directory.rename_removed(
        topic, [number for number in partitions if directory.remove(topic, number)]
    )


def killed(directory: LogDirectory) -> None:
    """Release only the lock, as the death of a process does."""
    directory.release()


def test_a_clean_close_and_open_gives_the_same_logs_without_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = filled(tmp_path)
    directory.logs["a", 0].delete_records_before(1)
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": -1}'
    directory = opened(tmp_path)
    assert caplog.messages == []
    assert sorted(directory.logs) == [("a", 0), ("a", 1), ("b-1", 0)]
    assert directory.logs["a", 0].log_start_offset == 1
    assert all(len(log.segments) == 2 for log in directory.logs.values())
    assert all(log.high_watermark == 4 for log in directory.logs.values())
    # Gone as soon as the logs may change: a crash from here on must be noticed.
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory.close()


def test_a_directory_that_was_not_closed_is_recovered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = filled(tmp_path)
    append_all(directory.logs["a", 0], [batch(b"written")])
    with directory.logs["a", 1].segments[-1].path.open("ab") as file:
        file.write(b"torn")
    killed(directory)
    directory = opened(tmp_path)
    assert values_of(directory.logs["a", 0])[-1] == b"written"
    assert "recovered a-1: offsets 0 to 4, 4 bytes dropped" in caplog.messages
    assert len(caplog.messages) == 3
    directory.close()


def test_checkpoints_are_kafkas_text_files(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    directory.logs["b-1", 0].delete_records_before(3)
    append_all(directory.logs["a", 1], [batch(b"not flushed")])
    directory.write_checkpoints()
    offsets = "0\n3\na 0 4\na 1 4\nb-1 0 4\n"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == offsets
    assert (tmp_path / "replication-offset-checkpoint").read_text() == offsets
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nb-1 0 3\n"
    assert (tmp_path / "a-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    killed(directory)


def test_a_checkpoint_is_written_if_its_offsets_changed(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / "recovery-point-offset-checkpoint")
    for offset, is_written in ((1, True), (1, False), (2, True)):
        checkpoint.path.unlink(missing_ok=True)
        checkpoint.write({("a", 0): offset})
        assert checkpoint.path.exists() == is_written
    known = OffsetCheckpoint(checkpoint.path)
    assert known.read() == {("a", 0): 2}
    checkpoint.path.unlink()
    known.write({("a", 0): 2})
    assert not checkpoint.path.exists()
    assert known.read() == {}
    known.write({})
    assert checkpoint.path.exists()


def test_the_log_start_survives_a_crash_after_its_checkpoint(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    directory.logs["a", 0].delete_records_before(1)
    directory.write_checkpoints()
    killed(directory)
    directory = opened(tmp_path)
    assert directory.logs["a", 0].log_start_offset == 1
    directory.close()


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\na 0 4\n", "0\n1\na 0\n", "0\n1\na 0 x\n"])
def test_an_unreadable_checkpoint_stops_the_opening(tmp_path: Path, text: str) -> None:
    opened(tmp_path).close()
    (tmp_path / "recovery-point-offset-checkpoint").write_text(text)
    with pytest.raises(ConfigurationError, match="recovery-point-offset-checkpoint"):
        opened(tmp_path)
    # And the lock is free again.
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    opened(tmp_path).close()


@pytest.mark.processes
def test_one_process_holds_the_directory(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    with pytest.raises(DataDirectoryInUse, match="in use"):
        opened(tmp_path)
    program = (
        "import sys; from pathlib import Path;"
        "from logbroker.storage.log_directory import LogDirectory;"
        "LogDirectory.claim(Path(sys.argv[1]))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "DataDirectoryInUse" in other.stderr
    directory.close()
    opened(tmp_path).close()


def test_a_topic_is_deleted_at_once_and_its_folders_are_returned(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    paths = delete(directory, "a", range(2))
    assert len(paths) == 2
    assert all(path.is_dir() and path.name.endswith("-delete") for path in paths)
    assert list(directory.logs) == [("b-1", 0)]
    again = directory.create("a", 0, TOPICS["a"], CONFIG)
    assert again.log_end_offset == 0
    directory.close()
    directory = opened(tmp_path)
    assert not any(path.exists() for path in paths)
    assert sorted(directory.logs) == [("a", 0), ("b-1", 0)]
    directory.close()


def test_a_recreated_topic_has_nothing_of_the_deleted_one(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    directory.logs["a", 0].delete_records_before(4)
    directory.write_checkpoints()
    delete(directory, "a", range(2))
    log = directory.create("a", 0, TOPICS["a"], CONFIG)
    append_all(log, [batch(b"new")])
    make_visible(log)
    killed(directory)
    directory = opened(tmp_path)
    assert values_of(directory.logs["a", 0]) == [b"new"]
    directory.close()


def test_a_topic_with_undeletable_folders_leaves_no_log_to_a_recreated_one(
    tmp_path: Path,
) -> None:
    directory = filled(tmp_path)
    shutil.rmtree(tmp_path / "a-0")
    with pytest.raises(StorageFailed, match="topic a cannot be deleted"):
        delete(directory, "a", range(2))
    assert list(directory.logs) == [("b-1", 0)]
    with pytest.raises(StorageFailed, match="a-1 cannot be created"):
        directory.create("a", 1, UUID(int=3), CONFIG)
    directory.close()


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.create("t" * 249, 9999, TOPIC_ID, CONFIG)
    (path,) = delete(directory, "t" * 249, [9999])
    assert len(path.name) == 255
    directory.close()


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    with pytest.raises(StorageFailed, match="a-0 cannot be created"):
        directory.create("a", 0, TOPICS["a"], CONFIG)
    assert values_of(directory.logs["a", 0])
    directory.close()


def test_a_failed_log_prevents_the_clean_marker(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    directory.logs["a", 0]._fail("a failed flush")
    with pytest.raises(StorageFailed, match="a failed flush"):
        directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    directory = opened(tmp_path)
    assert all(log.high_watermark == 4 for log in directory.logs.values())
    directory.close()


def test_other_files_are_ignored(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "registry.json").write_text("{}")
    (tmp_path / "note-1").write_text("a file, not a folder")
    directory = opened(tmp_path)
    assert directory.logs == {}
    directory.close()
    assert (tmp_path / "registry.json").exists()


def test_a_log_that_cannot_be_opened_does_not_keep_others_from_being_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = filled(tmp_path)
    values = values_of(directory.logs["b-1", 0])
    directory.close()
    epochs = tmp_path / "a-0" / "leader-epoch-checkpoint"
    good = epochs.read_bytes()
    epochs.unlink()
    epochs.mkdir()

    directory = opened(tmp_path)
    assert list(directory.unopened) == [("a", 0)]
    assert "a-0 cannot be opened" in caplog.text
    assert sorted(directory.logs) == [("a", 1), ("b-1", 0)]
    assert values_of(directory.logs["b-1", 0]) == values
    directory.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert "a 0 4" in (tmp_path / "recovery-point-offset-checkpoint").read_text()

    epochs.rmdir()
    epochs.write_bytes(good)
    directory = opened(tmp_path)
    assert directory.unopened == {}
    assert directory.logs["a", 0].high_watermark == 4
    directory.close()


def test_logs_are_opened_although_checkpoints_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed(filled(tmp_path))
    obstacle = tmp_path / "recovery-point-offset-checkpoint.tmp"
    obstacle.mkdir()
    directory = opened(tmp_path)
    assert sorted(directory.logs) == [("a", 0), ("a", 1), ("b-1", 0)]
    assert "checkpoints cannot be written" in caplog.text
    obstacle.rmdir()
    directory.close()


def test_logs_created_together_fail_independently(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    (tmp_path / "a-3").mkdir()
    created = directory.create_all([NewLog("a", n, TOPICS["a"], CONFIG) for n in range(20)])
    failed = [(key, str(each)) for key, each in created.items() if isinstance(each, StorageFailed)]
    assert [(key, text[:21]) for key, text in failed] == [(("a", 3), "a-3 cannot be created")]
    logs = {key: each for key, each in created.items() if isinstance(each, PartitionLog)}
    assert sorted(logs) == [("a", n) for n in range(20) if n != 3]
    assert directory.logs == {}
    directory.logs.update(logs)
    directory.close()
    (tmp_path / "a-3").rmdir()
    assert len(opened(tmp_path).logs) == 19


def files_of(folder: Path) -> dict[str, int]:
    """Each file with the time at which it was written last."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


@pytest.mark.parametrize("folder", ["a-0", "empty-0"])
def test_closing_an_unchanged_log_writes_nothing(
    tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics = TOPICS | {"empty": UUID(int=4)}
    directory = filled(tmp_path)
    directory.create("empty", 0, topics["empty"], CONFIG)
    directory.close()
    before = files_of(tmp_path / folder)

    opened(tmp_path, topics).close()
    assert files_of(tmp_path / folder) == before

    directory = opened(tmp_path, topics)
    append_all(directory.logs["a", 0], [batch(b"new")])
    append_all(directory.logs["empty", 0], [batch(b"new")])
    directory.close()
    assert files_of(tmp_path / folder) != before
    assert values_of(opened(tmp_path, topics).logs["empty", 0]) == [b"new"]
    assert caplog.messages == []


class CopiedLate(dict[K, V]):
    """A dictionary with which something happens right before its copy."""

    def __init__(self, content: Mapping[K, V], happen: Callable[[], None]) -> None:
        super().__init__(content)
        self._happen = happen

    def copy(self) -> dict[K, V]:
        self._happen()
        return super().copy()


@pytest.mark.parametrize("late", ["logs", "unopened"])
def test_a_checkpoint_has_a_log_that_is_opened_again_meanwhile(tmp_path: Path, late: str) -> None:
    filled(tmp_path).close()
    epochs = tmp_path / "a-0" / "leader-epoch-checkpoint"
    epochs.rename(tmp_path / "epochs")
    epochs.mkdir()
    directory = opened(tmp_path)
    epochs.rmdir()
    (tmp_path / "epochs").rename(epochs)
    log = directory.open_again(NewLog("a", 0, TOPICS["a"], CONFIG), BASE_MS)
    assert isinstance(log, PartitionLog)
    setattr(directory, late, CopiedLate(getattr(directory, late), lambda: directory.add(log)))
    directory.write_checkpoints()
    assert "a 0 4" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    directory.close()


def left_by_a_failed_creation(folder: Path, *, topic_id: UUID | None, log: str = "") -> None:
    folder.mkdir()
    if topic_id is not None:
        write_topic_id(folder, topic_id)
    if log:
        (folder / log).touch()


@pytest.mark.parametrize(
    ("topic_id", "log"), [(None, ""), (TOPICS["a"], ""), (TOPICS["a"], f"{0:020}.log")]
)
def test_a_folder_of_a_failed_creation_is_created_again(
    tmp_path: Path, topic_id: UUID | None, log: str
) -> None:
    directory = opened(tmp_path)
    left_by_a_failed_creation(tmp_path / "a-0", topic_id=topic_id, log=log)
    created = directory.open_again(NewLog("a", 0, TOPICS["a"], CONFIG), BASE_MS)
    assert isinstance(created, PartitionLog)
    directory.add(created)
    directory.close()
    assert list(opened(tmp_path).logs) == [("a", 0)]


@pytest.mark.parametrize(("topic_id", "log"), [(TOPICS["b-1"], ""), (TOPICS["a"], f"{7:020}.log")])
def test_a_folder_that_may_have_had_records_is_kept(
    tmp_path: Path, topic_id: UUID, log: str
) -> None:
    directory = opened(tmp_path)
    left_by_a_failed_creation(tmp_path / "a-0", topic_id=topic_id, log=log)
    refused = directory.open_again(NewLog("a", 0, TOPICS["a"], CONFIG), BASE_MS)
    assert isinstance(refused, StorageFailed)
    assert read_topic_id(tmp_path / "a-0") == topic_id
    directory.close()
