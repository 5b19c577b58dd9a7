"""The journal of a single broker's metadata: what a crash or damage leaves is read correctly."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.errors import ConfigurationError
from logbroker.registry.local import journal
from logbroker.registry.local.registry import LocalRegistry
from logbroker.registry.registry import PlacedTopic
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import HISTORY_MIN
from tests.support.function_calls import calls_of

ALONE = ((0,),)

State = tuple[dict[str, Topic], int]
"""The topics, and the next producer id."""

CHANGES: list[Callable[[LocalRegistry], object]] = [
    lambda registry: registry.create_topic("a", ALONE, {"retention.ms": "5"}),
    lambda registry: registry.create_topics(
        [PlacedTopic(name, ALONE, {}) for name in ("b", "c", "d")]
    ),
    lambda registry: registry.grow_topic("b", ALONE * 4),
    lambda registry: registry.allocate_producer_ids(10),
    lambda registry: registry.delete_topic("c"),
    lambda registry: registry.change_settings("d", lambda _: {"cleanup.policy": "compact"}),
    lambda registry: registry.create_topic("c", ALONE * 2, {}),
]


def state_of(registry: LocalRegistry) -> State:
    return dict(registry.view.topics), registry._metadata.next_producer_id


def change_all(data_dir: Path) -> list[State]:
    """Make all changes in a new directory; returns the state before, and after each of them."""
    registry = LocalRegistry.open(data_dir, 0)
    states = [state_of(registry)]
    for change in CHANGES:
        change(registry)
        states.append(state_of(registry))
    return states


def journal_of(data_dir: Path) -> Path:
    (path,) = data_dir.glob("registry-*.journal")
    return path


def test_changes_are_appended_and_the_snapshot_stays(tmp_path: Path) -> None:
    LocalRegistry.open(tmp_path, 0)
    snapshot = (tmp_path / "registry.json").read_bytes()
    states = change_all(tmp_path)
    assert (tmp_path / "registry.json").read_bytes() == snapshot
    lines = journal_of(tmp_path).read_bytes().splitlines()
    assert len(lines) == len(CHANGES)
    assert lines[3].endswith(b' {"next_producer_id":10}')
    assert state_of(LocalRegistry.open(tmp_path, 0)) == states[-1]


def test_a_journal_cut_at_any_byte_has_the_complete_changes(tmp_path: Path) -> None:
    states = change_all(tmp_path)
    path = journal_of(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert state_of(LocalRegistry.open(tmp_path, 0)) == states[whole[:size].count(b"\n")]


@pytest.mark.parametrize("cut", [b"", b"\0" * 100, b"\0" * 100 + b"}\n"])
def test_a_change_after_an_incomplete_one_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: bytes
) -> None:
    change_all(tmp_path)
    path = journal_of(tmp_path)
    path.write_bytes(path.read_bytes()[:-5] + cut)
    registry = LocalRegistry.open(tmp_path, 0)
    assert "c" not in registry.view.topics
    assert "incomplete last change is ignored" in caplog.text
    registry.create_topic("new", ALONE, {})
    assert not path.exists()
    registry.create_topic("newer", ALONE, {})
    assert state_of(LocalRegistry.open(tmp_path, 0)) == state_of(registry)


def test_damage_that_no_crash_leaves_is_rejected(tmp_path: Path) -> None:
    change_all(tmp_path)
    path = journal_of(tmp_path)
    whole = path.read_bytes()
    for position in range(0, len(whole) - 1, 7):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        # The last line may be incomplete, but without its line end only.
        with pytest.raises(ConfigurationError, match=f"{path.name} is malformed: line [1-7] "):
            LocalRegistry.open(tmp_path, 0)
        assert path.read_bytes() == damaged


def test_a_registry_without_a_journal_gets_one_at_the_first_change(tmp_path: Path) -> None:
    registry = LocalRegistry.open(tmp_path, 0)
    registry._files._journal_bytes = None
    registry.create_topic("old", ALONE, {})
    path = tmp_path / "registry.json"
    document = json.loads(path.read_bytes())
    del document["journal"]
    before = json.dumps(document | {"version": 1}).encode()
    path.write_bytes(before)
    opened = LocalRegistry.open(tmp_path, 0)
    assert list(opened.view.topics) == ["old"]
    assert path.read_bytes() == before
    opened.create_topic("new", ALONE, {})
    assert json.loads(path.read_bytes())["version"] == 2
    opened.create_topic("newer", ALONE, {})
    assert list(LocalRegistry.open(tmp_path, 0).view.topics) == ["old", "new", "newer"]


def test_a_long_journal_is_replaced_by_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_BYTES_MIN", 1_000)
    registry = LocalRegistry.open(tmp_path, 0)
    journals = set()
    for number in range(200):
        registry.allocate_producer_ids(1)
        registry.create_topic("t", ALONE, {"retention.ms": str(number)})
        registry.delete_topic("t")
        if number % 10 == 0:
            registry = LocalRegistry.open(tmp_path, 0)
        journals |= {path.name for path in tmp_path.glob("*.journal")}
    assert sum(path.stat().st_size for path in tmp_path.glob("registry*")) < 3_000
    assert len(journals) > 10
    assert state_of(LocalRegistry.open(tmp_path, 0)) == ({}, 200)


def test_a_topic_costs_as_much_as_the_first_however_many_exist(tmp_path: Path) -> None:
    registry = LocalRegistry.open(tmp_path, 0)
    few = calls_of(lambda: registry.create_topic("first", ALONE, {}))
    registry.create_topics([PlacedTopic(f"t{number}", ALONE, {}) for number in range(HISTORY_MIN)])
    registry._files._journal_bytes = None
    registry.allocate_producer_ids(1)  # writes a snapshot
    registry.create_topic("second", ALONE, {})
    assert calls_of(lambda: registry.create_topic("third", ALONE, {})) < 2 * few


KILLED_AT_EACH_LINE = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path

from logbroker.registry.local import journal
from logbroker.registry.local.registry import LocalRegistry
from tests.unit.logbroker.registry.test_registry_journal import CHANGES, state_of

FILES = ("registry/local/journal.py", "storage/file_writes.py")
journal.JOURNAL_BYTES_MIN = 300
start, work = Path(sys.argv[1]), Path(sys.argv[2])

def run(data_dir, stop, done):
    lines = 0
    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(FILES):
            return None
        if event == "line":
            lines += 1
            if lines == stop:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    registry = LocalRegistry.open(data_dir, 0)
    for change in CHANGES:
        change(registry)
        os.write(done, b".")
    sys.settrace(None)
    os._exit(0)

registry = LocalRegistry.open(Path(shutil.copytree(start, work / "whole")), 0)
states = [state_of(registry)]
for change in CHANGES:
    change(registry)
    states.append(state_of(registry))
for stop in count(1):
    data_dir = Path(shutil.copytree(start, work / "killed"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        run(data_dir, stop, writer)
    os.close(writer)
    acknowledged = len(os.read(reader, 100)) if os.waitpid(child, 0) else 0
    os.close(reader)
    registry = LocalRegistry.open(data_dir, 0)
    found = [(topics.keys(), {t.partitions for t in topics.values()}, next_id)
             for topics, next_id in (state_of(registry), *states[acknowledged:acknowledged + 2])]
    assert found[0] in found[1:], (stop, acknowledged, found)
    if acknowledged == len(CHANGES):
        break
    registry.create_topic("more", ((0,),), {})
    assert state_of(LocalRegistry.open(data_dir, 0)) == state_of(registry), stop
    shutil.rmtree(data_dir)
print(stop)
"""


@pytest.mark.processes
def test_a_kill_at_any_line_leaves_the_last_change_or_the_next(tmp_path: Path) -> None:
    start = tmp_path / "start"
    LocalRegistry.open(start, 0)
    path = start / "registry.json"
    text = re.sub(r' "journal": "\w+",\n', "", path.read_text())
    path.write_text(text.replace('"version": 2', '"version": 1'))
    command = [sys.executable, "-c", KILLED_AT_EACH_LINE, str(start), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
