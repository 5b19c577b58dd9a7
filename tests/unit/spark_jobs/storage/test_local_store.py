import errno
import itertools
import multiprocessing
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.errors import StorageFailed, UnsupportedStorage
from spark_jobs.storage import open_store
from spark_jobs.storage.local import LocalStore
from tests.support.processes.killed_children import ends_when_killed_at_line

NAME = "_commits/0/1.json"
DATA = b'{"all": "or nothing"}'


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "lake" / "table")


def failing(call: Callable[..., Any], error: OSError) -> Callable[..., Any]:
    """Makes the call and raises an error, as if the response were lost."""

    def fail(*arguments: Any, **named: Any) -> Any:
        call(*arguments, **named)
        raise error

    return fail


def test_only_the_first_caller_creates_a_file(store: LocalStore) -> None:
    assert store.create_if_absent(NAME, DATA)
    assert not store.create_if_absent(NAME, b"other")
    assert not store.create_if_absent(NAME, DATA)
    assert store.read(NAME) == DATA
    assert [file.path for file in store.list("_commits")] == [NAME]


def create_often(uri: str, gate: Any, won: Any) -> None:
    store = open_store(uri)
    for number in range(20):
        gate.wait()
        if store.create_if_absent(f"_commits/{number}", str(os.getpid()).encode()):
            won.put((number, os.getpid()))
    won.put(None)


@pytest.mark.processes
def test_of_many_processes_exactly_one_creates_a_file(store: LocalStore) -> None:
    context = multiprocessing.get_context("fork")
    gate, won = context.Barrier(4), context.Queue()
    children = [context.Process(target=create_often, args=(store.uri, gate, won)) for _ in range(4)]
    for child in children:
        child.start()
    winners = list(itertools.chain(*(iter(won.get, None) for _ in children)))
    for child in children:
        child.join()
    assert sorted(number for number, _ in winners) == list(range(20))
    for number, winner in winners:
        assert store.read(f"_commits/{number}") == str(winner).encode()


@pytest.mark.long
@pytest.mark.processes
def test_a_killed_writer_leaves_the_whole_file_or_none(tmp_path: Path) -> None:
    seen = set()
    for number in itertools.count():
        store = LocalStore(tmp_path / str(number))
        ended = ends_when_killed_at_line(
            number, "spark_jobs/storage", partial(store.create_if_absent, NAME, DATA)
        )
        files = [file.path for file in store.list("_commits")]
        whole = NAME in files
        seen.add(whole)
        assert all(path.endswith(".tmp") and "/." in path for path in files if path != NAME)
        # The next caller detects it.
        assert store.create_if_absent(NAME, b"next") is not whole
        assert store.read(NAME) == (DATA if whole else b"next")
        if ended:
            assert files == [NAME]
            break
    assert seen == {True, False}
    assert number > 20


@pytest.mark.long
@pytest.mark.processes
def test_a_file_of_a_killed_writer_does_not_block_others(tmp_path: Path) -> None:
    def write(store: LocalStore) -> None:
        with store.create("data/run=1/a.parquet") as stream:
            stream.write(DATA)

    for number in itertools.count():
        store = LocalStore(tmp_path / str(number))
        ended = ends_when_killed_at_line(number, "spark_jobs/storage", partial(write, store))
        with store.create("data/run=2/a.parquet") as stream:
            stream.write(b"other")
        assert store.read("data/run=2/a.parquet") == b"other"
        if ended:
            assert store.read("data/run=1/a.parquet") == DATA
            break
    assert number > 10


@pytest.mark.parametrize("error", [FileExistsError(errno.EEXIST, "taken"), OSError(errno.EIO, "?")])
def test_a_file_is_created_although_the_response_is_lost(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    monkeypatch.setattr(os, "link", failing(os.link, error))
    assert store.create_if_absent(NAME, DATA)
    assert store.read(NAME) == DATA
    assert [file.path for file in store.list("_commits")] == [NAME]


def test_a_file_system_without_links_is_rejected(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsupportedStorage, match="without hard links"):
        store.create_if_absent(NAME, DATA)
    assert not list(store.list("_commits"))


def test_a_full_disk_leaves_no_file(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(os.fsync, OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(StorageFailed, match=r"1\.json: No space left"):
        store.create_if_absent(NAME, DATA)
    with pytest.raises(StorageFailed, match=r"a\.parquet: No space left"):  # noqa: SIM117
        with store.create("data/a.parquet") as stream:
            stream.write(DATA)
    assert not list(store.list("_commits"))
    assert not list(store.list("data"))


def test_a_file_is_flushed_before_it_is_linked_and_its_folders_after(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def flush(descriptor: int) -> None:
        steps.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def name(source: Path, target: Path) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "link", name)
    store.create_if_absent(NAME, DATA)
    table = tmp_path / "lake" / "table"
    named = steps.index("link")
    assert steps[named - 1].endswith(".tmp")
    assert set(steps[named:]) >= {str(table / "_commits/0"), str(table / "_commits"), str(table)}
    # All created folders, up to the existing one.
    assert {str(tmp_path), str(tmp_path / "lake")} <= set(steps)

    steps.clear()
    with store.create("data/run=1/a") as stream:
        stream.write(DATA)
    assert steps[-4:] == [
        str(table / folder) for folder in ("data/run=1/a", "data/run=1", "data")
    ] + [str(table)]


def test_a_file_whose_writer_fails_is_deleted(store: LocalStore) -> None:
    with pytest.raises(TypeError), store.create("data/a") as stream:
        stream.write("text")  # type: ignore[call-overload]
    assert not list(store.list("data"))


def test_an_existing_file_is_not_written_again(store: LocalStore) -> None:
    with store.create("data/a") as stream:
        stream.write(DATA)
    with pytest.raises(StorageFailed, match="exists"):  # noqa: SIM117
        with store.create("data/a"):
            pass
    assert store.read("data/a") == DATA


def test_listings_are_recursive_with_sizes_and_times(store: LocalStore) -> None:
    for path in ("data/a", "data/run=1/b", "data/run=1/c/d", "other/e"):
        store.create_if_absent(path, DATA)
    os.utime(Path(store.uri.removeprefix("file://")) / "data/a", (5, 1_700_000_000.25))
    files = {file.path: file for file in store.list("data")}
    assert set(files) == {"data/a", "data/run=1/b", "data/run=1/c/d"}
    assert files["data/a"].modified_s == 1_700_000_000.25
    assert {file.size for file in files.values()} == {len(DATA)}
    assert store.folders("data") == ["run=1"]
    assert list(store.list("nothing")) == []
    assert store.folders("nothing") == []


def test_files_deleted_during_a_listing_are_omitted(store: LocalStore) -> None:
    for path in ("data/run=1/a", "data/run=1/b", "data/run=2/a", "data/run=2/b"):
        store.create_if_absent(path, DATA)
    listing = iter(store.list("data"))
    first = next(listing).path.split("/")[1]
    other = {"run=1": "run=2", "run=2": "run=1"}[first]
    store.delete(f"data/{other}")
    assert all(file.path.startswith(f"data/{first}/") for file in listing)


def test_files_and_folders_are_deleted_if_they_exist(store: LocalStore) -> None:
    for path in ("data/run=1/a", "data/run=1/b/c", "data/d"):
        store.create_if_absent(path, DATA)
    for path in ("data/run=1", "data/d", "data/d", "nothing/at/all"):
        store.delete(path)
    assert not list(store.list("data"))
    with pytest.raises(FileNotFoundError):
        store.read("data/d")


def test_a_file_in_place_of_a_folder_is_an_error(store: LocalStore) -> None:
    store.create_if_absent("data", DATA)
    with pytest.raises(StorageFailed, match=r"data/a: "):
        store.create_if_absent("data/a", DATA)
    with pytest.raises(StorageFailed, match=r"data/a: Not a directory"):
        store.read("data/a")
