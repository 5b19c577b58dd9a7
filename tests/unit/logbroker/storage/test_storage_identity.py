"""The identity of a data directory and the topic id of a folder: valid, missing, invalid."""

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from logbroker.config import LogConfig
from logbroker.errors import ConfigurationError
from logbroker.storage.identity import DirectoryIdentity, new_directory_id
from logbroker.storage.log_directory import CLEAN_MARKER_NAME, LogDirectory
from tests.unit.logbroker.storage.storage_content import (
    append_all,
    batch,
    make_visible,
    open_directory,
    values_of,
)

CONFIG = LogConfig()
FIRST, SECOND = UUID(int=1), UUID(int=2)
OWNER = DirectoryIdentity(cluster_id="XyVR6J07TkCC1F31XHtCiQ", broker_id=3, directory_id="d")


def with_one_record(path: Path, topic_id: UUID = FIRST) -> None:
    """A closed directory with one record in `events-0`."""
    directory = open_directory(path, {}, CONFIG)
    log = directory.create("events", 0, topic_id, CONFIG)
    append_all(log, [batch(b"kept")])
    make_visible(log)
    directory.close()


def test_a_folder_stores_its_topic_id_in_kafkas_format(tmp_path: Path) -> None:
    with_one_record(tmp_path, UUID("505eed1d-3a69-448d-9107-45c7eb600d63"))
    content = (tmp_path / "events-0" / "partition.metadata").read_text()
    assert content == "version: 0\ntopic_id: UF7tHTppRI2RB0XH62ANYw\n"


def test_the_folder_of_a_deleted_topic_is_removed_at_the_next_start(tmp_path: Path) -> None:
    with_one_record(tmp_path)
    directory = open_directory(tmp_path, {"other": SECOND}, CONFIG)
    assert directory.logs == {}
    assert not list(tmp_path.glob("events*"))
    directory.close()


def test_a_topic_of_the_same_name_does_not_get_the_records_of_the_old_one(tmp_path: Path) -> None:
    with_one_record(tmp_path, FIRST)
    directory = open_directory(tmp_path, {"events": SECOND}, CONFIG)
    log = directory.create("events", 0, SECOND, CONFIG)
    assert log.log_end_offset == 0
    directory.close()


def test_a_folder_without_topic_id_is_reported_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_one_record(tmp_path)
    (tmp_path / "events-0" / "partition.metadata").unlink()
    directory = open_directory(tmp_path, {"events": FIRST}, CONFIG)
    assert directory.logs == {}
    assert "skipped folder events-0: it has no topic id" in caplog.messages
    directory.close()
    assert (tmp_path / "events-0" / "00000000000000000000.log").stat().st_size


def test_the_folder_of_a_topic_with_unreadable_metadata_is_reported_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_one_record(tmp_path)
    directory = LogDirectory.claim(tmp_path)
    directory.load(lambda _: None, 0, unreadable={"events"})
    assert directory.logs == {}
    assert "events-0 is not opened: metadata of its topic is unreadable" in caplog.messages
    directory.close()
    assert (tmp_path / CLEAN_MARKER_NAME).exists(), "it must not cost all others a recovery"
    assert (tmp_path / "events-0" / "00000000000000000000.log").stat().st_size


def test_a_folder_with_the_name_of_another_topic_is_reported_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with_one_record(tmp_path)
    (tmp_path / "events-0").rename(tmp_path / "renamed-0")
    directory = open_directory(tmp_path, {"events": FIRST, "renamed": SECOND}, CONFIG)
    assert directory.logs == {}
    assert "skipped folder renamed-0: it belongs to topic events" in caplog.messages
    directory.close()


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopi"], ids=["no", "empty", "cut"])
def test_a_creation_interrupted_by_a_crash_is_repeated(
    tmp_path: Path, content: bytes | None
) -> None:
    folder = tmp_path / "events-0"
    folder.mkdir()
    if content is not None:
        (folder / "partition.metadata").write_bytes(content)
    directory = open_directory(tmp_path, {"events": FIRST}, CONFIG)
    log = directory.create("events", 0, FIRST, CONFIG)
    append_all(log, [batch(b"first")])
    make_visible(log)
    directory.close()
    directory = open_directory(tmp_path, {"events": FIRST}, CONFIG)
    assert values_of(directory.logs["events", 0]) == [b"first"]
    directory.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n", "version is 1; supported: 0"),
        ("version: 0\n", "has no 'topic_id'"),
        ("version: 0\ntopic_id: AAAA\n", "is not readable"),
    ],
)
def test_an_invalid_partition_metadata_of_a_folder_with_records_is_rejected(
    tmp_path: Path, content: str, why: str
) -> None:
    with_one_record(tmp_path)
    (tmp_path / "events-0" / "partition.metadata").write_text(content)
    with pytest.raises(ConfigurationError, match=f"events-0/partition.metadata.*{why}"):
        open_directory(tmp_path, {"events": FIRST}, CONFIG)


def test_a_directory_stores_its_owner_in_kafkas_format(tmp_path: Path) -> None:
    directory = LogDirectory.claim(tmp_path)
    assert directory.identity is None
    directory.set_identity(OWNER)
    assert directory.identity == OWNER
    directory.release()
    assert (tmp_path / "meta.properties").read_text() == (
        "broker.id=3\ncluster.id=XyVR6J07TkCC1F31XHtCiQ\ndirectory.id=d\nversion=0\n"
    )


def test_batches_written_by_java_are_decoded(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(
        "#\n#Fri Nov 20 10:00:00 UTC 2026\ncluster.id=XyVR6J07TkCC1F31XHtCiQ\nversion=0\n"
        "directory.id=d\nbroker.id=3\n"
    )
    directory = LogDirectory.claim(tmp_path)
    assert directory.identity == OWNER
    directory.release()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("version=1\nnode.id=3\n", "version is 1; supported: 0"),
        ("version=0\nbroker.id=3\ncluster.id=c\n", "has no 'directory.id'"),
        ("version=0\nbroker.id=x\ncluster.id=c\ndirectory.id=d\n", "is not readable"),
        ("", "has no 'version'"),
    ],
)
def test_an_invalid_meta_properties_is_rejected(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "meta.properties").write_text(content)
    directory = LogDirectory.claim(tmp_path)
    with pytest.raises(ConfigurationError, match=f"meta.properties.*{why}"):
        _ = directory.identity
    directory.release()


def test_a_directory_with_logs_and_without_identity_is_rejected(tmp_path: Path) -> None:
    with_one_record(tmp_path)
    directory = LogDirectory.claim(tmp_path)
    with pytest.raises(ConfigurationError, match=r"has logs, but meta\.properties is missing"):
        _ = directory.identity
    shutil.rmtree(tmp_path / "events-0")
    assert directory.identity is None
    directory.release()


def test_no_two_directories_have_one_id() -> None:
    assert len({new_directory_id() for _ in range(100)}) == 100
    assert all(len(new_directory_id()) == 22 for _ in range(10))
