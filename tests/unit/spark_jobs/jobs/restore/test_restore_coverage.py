"""The coverage of a table and its gaps."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from app.api.models.restorations import Missing
from spark_jobs.jobs.load_position import write_position
from spark_jobs.jobs.restore.coverage import (
    DISORDER_MS,
    Coverage,
    Gap,
    describe_gaps,
    read_coverage,
)
from spark_jobs.jobs.restore.job import deletable_offsets
from spark_jobs.jobs.restore.records import ArchivedRecord, archive_headers
from spark_jobs.jobs.restore.service import PendingRestore, RestoreQueue
from spark_jobs.log.planning import TopicPosition
from spark_jobs.offsets.resolution import OffsetBounds
from spark_jobs.tables import Commit, DataFile

TOPIC = "delivery_log"
HOUR_MS = 3_600_000
ID = UUID(int=1)


def file(start: int, end: int, hour: int, topic: str = TOPIC, partition: int = 3) -> DataFile:
    """A file of the offsets `[start, end)`, all of one hour."""
    times: dict[str, Any] = {
        "time_min_ms": hour * HOUR_MS,
        "time_max_ms": (hour + 1) * HOUR_MS - 1,
    }
    path = f"data/{topic}-{partition}-{start}.parquet"
    return DataFile(
        path, end - start, 1, topic, partition, offset_min=start, offset_max=end - 1, **times
    )


def loaded(
    version: int,
    end: int,
    *files: DataFile,
    missing: Sequence[tuple[int, int]] = (),
    topic_id: UUID = ID,
    kind: str = "load",
) -> Commit:
    """A load up to an offset of partition 3."""
    lost = [{"topic": TOPIC, "partition": 3, "start": a, "end": b} for a, b in missing]
    position = write_position({TOPIC: TopicPosition(topic_id, {3: end})}, {TOPIC: 0})
    return Commit(version, kind, "run", position, files, (), 0, "0", {"missing": lost})


def of(*commits: Commit) -> Coverage:
    return read_coverage(commits, TOPIC)[3]


def gaps(covered: Coverage, start_hour: int, below: int) -> list[tuple[int, int | None]]:
    found = covered.gaps_in_window(start_hour * HOUR_MS, below)
    return [(gap.start, gap.end) for gap in found]


def test_a_complete_table_has_a_gap_only_after_its_last_offset() -> None:
    covered = of(
        loaded(1, 100, file(0, 60, 1), file(60, 100, 2), file(0, 9, 1, "events")),
        # Compaction merges files of several partitions; coverage does not change.
        loaded(2, 100, file(0, 999, 1, partition=4), kind="compact"),
        loaded(3, 150, file(100, 150, 3)),
    )
    assert (covered.begin, covered.end) == (0, 150)
    assert gaps(covered, 1, 150) == []
    assert gaps(covered, 1, 151) == [(150, None)]
    assert read_coverage([loaded(1, 1)], "events") == {}


def test_lost_offsets_are_a_gap_unless_older_or_later_than_the_window() -> None:
    covered = of(
        loaded(1, 200, file(40, 140, 5), file(140, 200, 8)),
        loaded(2, 400, file(300, 400, 12), missing=[(200, 300)]),
    )
    # Offsets before the table are older than its first records, which are older than hour 9.
    assert gaps(covered, 9, 400) == [(200, 300)]
    assert gaps(covered, 9, 200) == []
    # Lost records may be as young as the ones before them.
    assert gaps(covered, 8, 400) == [(200, 300)]
    assert gaps(covered, 5, 200) == [(0, 40)]
    assert gaps(covered, 14, 400) == []
    assert gaps(covered, 14 - DISORDER_MS // HOUR_MS, 400) == [(200, 300)]
    text = describe_gaps(covered.gaps_in_window(0, 500), "delivery_log-3", 500)
    assert text == (
        "delivery_log-3 from offset 0 to 40: before the first loaded offset; "
        "delivery_log-3 from offset 200 to 300: deleted before they were loaded; "
        "delivery_log-3 from offset 400 to 500: not loaded yet"
    )


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(file(350, 351, 3), id="one"),
        pytest.param(file(300, 301, 3), id="the first"),
        pytest.param(file(301, 500, 3), id="many among the others"),
        pytest.param(file(480, 700, 3), id="all of the last"),
    ],
)
def test_late_records_after_a_gap_do_not_close_it(late: DataFile) -> None:
    assert late.offset_min is not None
    on_time = file(300 if late.offset_min > 300 else 301, 700, 11)
    lost = of(
        loaded(1, 200, file(0, 200, 8)),
        loaded(2, 700, on_time, late, missing=[(200, 300)]),
    )
    assert gaps(lost, 10, 700) == [(200, 300)]
    begins_behind = of(loaded(1, 700, on_time, late))
    assert gaps(begins_behind, 10, 700) == [(0, 300)]


def test_old_records_above_the_window_do_not_close_a_gap() -> None:
    covered = of(loaded(1, 100, file(0, 100, 11)), loaded(2, 500, file(200, 500, 3)))
    covered.missing.append(Gap(100, 200, "deleted before they were loaded"))
    assert gaps(covered, 10, 200) == [(100, 200)]
    assert gaps(covered, 10, 299) == [(100, 200)]
    assert gaps(covered, 10, 300) == []


def test_the_text_of_many_gaps_is_within_the_limit_of_the_service() -> None:
    far = 2**62
    many = [Gap(far + n, far + n + 1, "deleted before they were loaded") for n in range(40)]
    text = describe_gaps(many, "delivery_log-2147483647", far + 40)
    assert text.endswith(f"to {far + 10}: deleted before they were loaded; and 30 more")
    Missing(missing=text)


def test_a_recreated_topic_loses_its_earlier_coverage() -> None:
    covered = of(
        loaded(1, 100, file(0, 100, 1)),
        loaded(2, 150, file(0, 150, 6), topic_id=UUID(int=2)),
        loaded(3, 180, file(150, 180, 9), topic_id=UUID(int=2)),
    )
    assert (covered.topic_id, covered.begin, covered.end) == (UUID(int=2), 0, 180)
    assert gaps(covered, 1, 180) == [(-1, 0)]
    assert gaps(covered, 9, 180) == []


@pytest.mark.parametrize(
    ("headers", "published"),
    [
        ([("event-id", b"evt_1"), ("audit", b"\0")], [("event-id", b"evt_1")]),
        ([("a", None), ("event-id", b"")], [("a", None), ("event-id", b"delivery_log-3-17")]),
        ([("event-id", b"a\nb"), ("a", b"b")], [("a", b"b"), ("event-id", b"delivery_log-3-17")]),
        (
            [("event-id", b"evt_1"), ("account-id", b"acc_1")],
            [("event-id", b"evt_1"), ("account-id", b"acc_1")],
        ),
        # The last header of a name counts.
        ([("event-id", b"x"), ("event-id", None)], [("event-id", b"delivery_log-3-17")]),
        ([], [("event-id", b"delivery_log-3-17")]),
    ],
)
def test_a_record_keeps_its_headers_and_event_id(
    headers: list[tuple[str, bytes | None]], published: list[tuple[str, bytes | None]]
) -> None:
    assert archive_headers(ArchivedRecord(17, 0, b"", headers), "delivery_log-3") == published


def awaited(replay_id: str, partition: int) -> PendingRestore:
    return PendingRestore(replay_id, "wh", 0, 1, partition, 9, None)


def test_only_unneeded_records_of_idle_partitions_are_deletable() -> None:
    held = {partition: OffsetBounds(10, 100) for partition in range(6)} | {
        6: OffsetBounds(100, 100)
    }
    work = RestoreQueue(
        pending=(awaited("rpl_missing", 2), awaited("rpl_waits", 3)),
        further_partitions=frozenset({5}),
        needed={1: 40, 2: 10, 4: 500},
    )
    assert deletable_offsets(held, work, frozenset({"rpl_missing"})) == {0: 100, 1: 40, 4: 100}
    # A job that has not found a window incomplete keeps its records.
    alone = replace(work, needed={})
    assert 2 not in deletable_offsets(held, alone, frozenset())
    assert deletable_offsets(held, alone, frozenset({"rpl_missing"}))[2] == 100
