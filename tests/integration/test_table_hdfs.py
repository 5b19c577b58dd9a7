"""Tables on HDFS: a real name node and data node, and a client without a JVM."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hdfs_native import Client

from spark_jobs.errors import RunSuperseded, StorageFailed
from spark_jobs.storage import TableStore, open_store
from spark_jobs.storage.hdfs import HdfsStore
from spark_jobs.tables import open_table
from tests.support.processes.waiting import until
from tests.support.spark.hdfs_server import TEST_TIMEOUT_S, HdfsServer
from tests.support.spark.table_runs import compact, load, paths, stored_paths, write_run_file
from tests.support.spark.table_writers import TableWriter, check_claims, check_content

pytestmark = [
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.xdist_group("spark"),
    pytest.mark.long,
]
DATA = b'{"all": "or nothing"}'


@pytest.fixture
def store(hdfs: HdfsServer, request: pytest.FixtureRequest) -> TableStore:
    return open_store(f"{hdfs.uri}/{request.node.name}")


class _LossyClient(Client):
    """A client whose renames succeed, and whose responses are lost."""

    def __init__(self, uri: str, error: Exception) -> None:
        super().__init__(uri)
        self._error = error

    def rename(self, src: str, dst: str, overwrite: bool = False) -> None:
        super().rename(src, dst, overwrite)
        raise self._error


def test_a_store_on_hdfs_meets_the_interface(store: TableStore) -> None:
    assert store.create_if_absent("_commits/0/1.json", DATA)
    assert not store.create_if_absent("_commits/0/1.json", b"other")
    assert store.read("_commits/0/1.json") == DATA
    for path in ("data/a", "data/run=1/ü %20[x]", "data/run=1/c/d"):
        with store.create(path) as stream:
            stream.write(DATA)
    with store.create("data/empty"):
        pass
    files = {file.path: file for file in store.list("data")}
    sizes = {path: file.size for path, file in files.items()}
    assert sizes.pop("data/empty") == 0
    assert sizes == dict.fromkeys(["data/a", "data/run=1/ü %20[x]", "data/run=1/c/d"], len(DATA))
    assert all(file.modified_s > 1_700_000_000 for file in files.values())
    assert [file.path for file in store.list("_commits")] == ["_commits/0/1.json"]
    assert store.folders("data") == ["run=1"]
    assert list(store.list("nothing")) == []
    assert store.folders("nothing") == []
    with pytest.raises(StorageFailed, match="exists"), store.create("data/a"):
        pass
    assert store.read("data/a") == DATA
    for path in ("data/run=1", "data/a", "data/a", "nothing/at/all"):
        store.delete(path)
    assert [file.path for file in store.list("data")] == ["data/empty"]
    with pytest.raises(FileNotFoundError):
        store.read("data/a")


def test_a_file_whose_writer_fails_is_deleted(store: TableStore) -> None:
    with pytest.raises(TypeError), store.create("data/a") as stream:
        stream.write("text")  # type: ignore[call-overload]
    assert list(store.list("data")) == []


def test_parquet_is_written_and_read_back(store: TableStore) -> None:
    numbers = pa.table({"number": pa.array(range(100_000), pa.int64())})
    with store.create("data/a.parquet") as stream:
        pq.write_table(numbers, stream)
        size = stream.tell()
    assert [file.size for file in store.list("data")] == [size]
    assert pq.read_table(pa.BufferReader(store.read("data/a.parquet"))) == numbers


@pytest.mark.parametrize("error", [RuntimeError("connection lost"), FileNotFoundError("source")])
def test_a_file_is_created_although_the_response_is_lost(
    hdfs: HdfsServer, error: Exception
) -> None:
    store = HdfsStore(_LossyClient(hdfs.uri, error), hdfs.uri, f"/{type(error).__name__}")
    assert store.create_if_absent("_commits/1", DATA)
    assert store.read("_commits/1") == DATA
    assert [file.path for file in store.list("_commits")] == ["_commits/1"]


def test_a_failed_request_is_an_error(hdfs: HdfsServer, store: TableStore) -> None:
    class Refusing(Client):
        def rename(self, src: str, dst: str, overwrite: bool = False) -> None:
            raise RuntimeError("safe mode")

    refusing = HdfsStore(Refusing(hdfs.uri), hdfs.uri, "/refusing")
    with pytest.raises(StorageFailed, match="_commits/1: safe mode"):
        refusing.create_if_absent("_commits/1", DATA)
    assert list(refusing.list("_commits")) == []


def test_a_table_is_loaded_compacted_and_cleaned(hdfs: HdfsServer) -> None:
    table = open_table(f"{hdfs.uri}/lake/table")
    base = table.head()
    load(table, 3, base)
    with pytest.raises(RunSuperseded, match="committed version 1 first"):
        load(table, 6, base)
    load(table, 6)
    compact(table, paths(table.head()), may_rebase=lambda _head: True)
    write_run_file(table, table.new_run("load"), "dead")
    head = open_table(table.store.uri).head()
    assert (head.version, head.position, head.records) == (3, {"end": 6}, 6)
    # The files of the rejected and the dead run, and the two compacted ones.
    assert table.delete_orphans(0.0, keep_s=0.0).files == 4
    assert stored_paths(table) == paths(table.head()) == paths(head)


def test_of_many_processes_exactly_one_commits_each_version(
    hdfs: HdfsServer, tmp_path: Path
) -> None:
    table, claims = open_table(f"{hdfs.uri}/writers/table"), tmp_path / "claims"
    claims.mkdir()
    randomness = random.Random(3)
    writers = [
        TableWriter(role, table.store.uri, claims, randomness)
        for role in ("load", "load", "compact")
    ]
    try:
        for _ in range(4):
            for member in writers:
                member.start()
            wanted = table.head().version + randomness.randint(1, 3)

            def is_reached(wanted: int = wanted) -> bool:
                return table.head().version >= wanted

            until(is_reached, f"version {wanted}")
            randomness.choice(writers).kill()
    finally:
        for member in writers:
            member.kill()
    check_content(table, table.head())
    check_claims(table, claims)


def test_commits_survive_a_restart_of_the_servers(hdfs: HdfsServer) -> None:
    table = open_table(f"{hdfs.uri}/lake/surviving")
    load(table, 3)
    hdfs.kill()
    hdfs.start()
    again = open_table(table.store.uri)
    assert again.head() == table.head()
    assert [again.store.read(path) for path in paths(again.head())] == [b"aaa"]
    load(again, 6)
    assert table.head().position == {"end": 6}


def test_an_unreachable_server_is_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = "<name>dfs.client.failover.max.attempts</name><value>1</value>"
    document = f"<configuration><property>{attempts}</property></configuration>"
    (tmp_path / "hdfs-site.xml").write_text(document)
    (tmp_path / "core-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(StorageFailed, match=r"hdfs://127\.0\.0\.1:1/lake/_commits"):
        open_table("hdfs://127.0.0.1:1/lake").head()
