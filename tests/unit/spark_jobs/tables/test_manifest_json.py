import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.errors import NewerTable
from spark_jobs.tables.manifest import Commit, DataFile, Snapshot
from spark_jobs.tables.manifest_json import (
    MalformedManifest,
    read_checkpoint,
    read_commit,
    write_checkpoint,
    write_commit,
)

# Written by the first release, and always readable.
MANIFEST = b"""{"format":1,"version":7,"parent":6,"kind":"load","run":"8e1",
"committed_ms":1700000000000,"code_version":"0.1.0","records":3,"position":{"topics":{"events":{"id":null,"offsets":{"0":3}}}},
"added":[{"path":"data/run=8e1/a.parquet","records":3,"bytes":10,"topic":"events","partition":0,
"date":"2023-11-14","hour":22,"offset_min":0,"offset_max":2,"time_min_ms":1,"time_max_ms":2}],
"removed":["data/run=7/b.parquet"],"report":{"missing":0},"abandoned":["66"],"oldest":2}"""
COMMIT = Commit(
    version=7,
    kind="load",
    run="8e1",
    position={"topics": {"events": {"id": None, "offsets": {"0": 3}}}},
    added=(DataFile("data/run=8e1/a.parquet", 3, 10, "events", 0, "2023-11-14", 22, 0, 2, 1, 2),),
    removed=("data/run=7/b.parquet",),
    committed_ms=1_700_000_000_000,
    code_version="0.1.0",
    report={"missing": 0},
    abandoned=("66",),
    oldest=2,
)

numbers = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(categories=("L", "N")), min_size=1)
json_objects = st.dictionaries(st.text(), st.none() | numbers | st.text() | st.lists(st.text()))
files = st.builds(
    DataFile,
    path=names.map("data/run=1/{}.parquet".format),
    records=numbers,
    bytes=numbers,
    topic=st.none() | st.text(),
    partition=st.none() | numbers,
    date=st.none() | st.dates().map(str),
    hour=st.none() | numbers,
    offset_min=st.none() | numbers,
    offset_max=st.none() | numbers,
    time_min_ms=st.none() | numbers,
    time_max_ms=st.none() | numbers,
)
commits = st.builds(
    Commit,
    version=st.integers(1, 10**20 - 1),
    kind=st.text(),
    run=st.text(),
    position=json_objects,
    added=st.lists(files).map(tuple),
    removed=st.lists(st.text()).map(tuple),
    committed_ms=numbers,
    code_version=st.text(),
    report=json_objects,
    abandoned=st.lists(st.text()).map(tuple),
    oldest=numbers,
)


def changed(**changes: Any) -> bytes:
    document = json.loads(MANIFEST) | changes
    return json.dumps({k: v for k, v in document.items() if v is not ...}).encode()


def test_a_manifest_of_the_first_release_is_read() -> None:
    assert read_commit(MANIFEST, 7) == COMMIT


def test_manifests_equal_those_of_the_first_release() -> None:
    assert json.loads(write_commit(COMMIT)) == json.loads(MANIFEST)


@given(commits)
def test_a_commit_round_trips(commit: Commit) -> None:
    assert read_commit(write_commit(commit), commit.version) == commit


@given(st.lists(files), json_objects, st.integers(1, 10**20 - 1), numbers)
def test_a_checkpoint_round_trips(
    some: list[DataFile], position: dict[str, Any], version: int, number: int
) -> None:
    snapshot = Snapshot(version, position, tuple(some), number, number, checkpoint=version)
    assert read_checkpoint(write_checkpoint(snapshot), version) == snapshot


def test_a_truncated_manifest_is_malformed() -> None:
    for end in range(len(MANIFEST)):
        with pytest.raises(MalformedManifest):
            read_commit(MANIFEST[:end], 7)


def test_a_deeply_nested_manifest_is_malformed() -> None:
    with pytest.raises(MalformedManifest):
        read_commit(b"[" * 100_000, 7)


@pytest.mark.parametrize("name", sorted(json.loads(MANIFEST)))
def test_members_are_required_and_typed(name: str) -> None:
    for value in (..., None, True, "text" if name not in {"kind", "run", "code_version"} else 1):
        with pytest.raises(MalformedManifest, match=name):
            read_commit(changed(**{name: value}), 7)


@pytest.mark.parametrize("path", ["../7/a.parquet", "/etc/passwd", "data/../../a", "", "a//b"])
def test_a_path_outside_the_table_is_rejected(path: str) -> None:
    with pytest.raises(MalformedManifest, match="path"):
        read_commit(changed(added=[{"path": path, "records": 3, "bytes": 1}]), 7)


@pytest.mark.parametrize(
    "file",
    [{}, 1, {"path": "data/a", "records": 3}, {"path": "data/a", "records": 3, "bytes": 1.5}],
)
def test_a_malformed_file_entry_is_rejected(file: Any) -> None:
    with pytest.raises(MalformedManifest, match="file"):
        read_commit(changed(added=[file]), 7)


@pytest.mark.parametrize(
    "changes", [{"version": 8}, {"parent": 5}, {"records": 4}, {"removed": [1]}], ids=str
)
def test_an_inconsistent_manifest_is_rejected(changes: Any) -> None:
    with pytest.raises(MalformedManifest):
        read_commit(changed(**changes), 7)


def test_a_newer_format_is_rejected() -> None:
    newer = changed(format=2, version=..., added={"of": "another kind"})
    with pytest.raises(NewerTable, match="format is 2; this program reads formats up to 1"):
        read_commit(newer, 7)
    with pytest.raises(NewerTable, match="format is 2"):
        read_checkpoint(newer, 7)


def test_unknown_members_are_ignored() -> None:
    file = {"path": "data/a", "records": 3, "bytes": 1, "colour": "red"}
    commit = read_commit(changed(added=[file], mood="fine"), 7)
    assert commit.added == (DataFile("data/a", 3, 1),)
