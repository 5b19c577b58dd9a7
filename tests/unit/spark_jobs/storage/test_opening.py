import sys
from pathlib import Path

import pytest

from spark_jobs.errors import InvalidOption, UnsupportedStorage
from spark_jobs.storage import open_store
from spark_jobs.storage.table_store import is_inside


@pytest.mark.parametrize("scheme", ["s3", "s3a", "S3N", "gs", "abfss", "wasb", "webhdfs", "http"])
def test_a_store_without_conditional_creation_is_rejected(scheme: str) -> None:
    with pytest.raises(UnsupportedStorage, match=f"{scheme.lower()}://") as raised:
        open_store(f"{scheme}://bucket/table")
    assert "file:///PATH" in str(raised.value)
    assert "hdfs://HOST:PORT/PATH" in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("/lake/records", "file:///lake/records"),
        ("/lake/records/", "file:///lake/records"),
        ("file:///lake/records", "file:///lake/records"),
        ("file:/lake/records", "file:///lake/records"),
        ("FILE:///lake/records", "file:///lake/records"),
        # As in Hadoop's paths, nothing is percent-encoded.
        ("file:///lake/a%20b c[1]?#", "file:///lake/a%20b c[1]?#"),
    ],
)
def test_the_url_of_a_folder_is_sparks(uri: str, url: str) -> None:
    store = open_store(uri)
    assert store.uri == url
    assert store.url("data/a.parquet") == f"{url}/data/a.parquet"


def test_a_relative_path_is_resolved_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("lake/records")
    monkeypatch.chdir("/")
    assert store.uri == f"file://{tmp_path}/lake/records"


@pytest.mark.parametrize("folder", ["", "file:", "file://server/lake", "/lake/../a", "/lake\n"])
def test_uris_without_a_folder_are_rejected(folder: str) -> None:
    with pytest.raises(InvalidOption, match=r"not a folder|has a host|contains"):
        open_store(folder)


@pytest.mark.parametrize("rest", ["/lake", "a:1", "a:1/", "a:1/lake/../records", "a:1/lake//b"])
def test_hdfs_uris_without_a_folder_are_rejected(rest: str) -> None:
    with pytest.raises(InvalidOption, match="is not a folder"):
        open_store(f"hdfs://{rest}")


def test_hdfs_without_its_client_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "spark_jobs.storage.hdfs", raising=False)
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(UnsupportedStorage, match=r"rewind\[hdfs\]"):
        open_store("hdfs://127.0.0.1:9000/lake")


@pytest.mark.parametrize("path", ["a", "data/run=1/a.parquet", "a b/ü", "..a/b", "a..", "%2e%2e/a"])
def test_valid_paths_are_inside_the_store(path: str) -> None:
    assert is_inside(path)


@pytest.mark.parametrize("path", ["", "/", "/etc/passwd", "..", "../a", "a/../../b", "a/..", "."])
def test_paths_outside_the_store_are_rejected(path: str) -> None:
    assert not is_inside(path)


@pytest.mark.parametrize("path", ["./a", "a//b", "a/", "a\\..\\b", "a\0b", "a\nb"])
def test_paths_that_are_not_normalised_are_rejected(path: str) -> None:
    assert not is_inside(path)
