"""The nightly load: appends new records of the log as Parquet by topic, day and hour.

    position of the last commit ─▶ ranges, fixed ─▶ tasks: read, decode, write ─▶ one commit

The commit makes data and offsets visible together. A run that dies before it leaves files that no
reader uses; the next run starts where the last commit ended. The driver holds a row per range and
an entry per file. Files are bounded by size, and their number by hours per range.

Source: the 2011 paper, section 4: data and offsets are stored only when the job succeeds.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from pyspark.sql import SparkSession

from logbroker.client.raw import EARLIEST, RawCluster
from spark_jobs.errors import DataLost, InvalidOption
from spark_jobs.jobs.defaults import RECORDS_MAX
from spark_jobs.jobs.execution import run_in_tasks
from spark_jobs.jobs.load_position import (
    advance_position,
    read_position,
    read_times,
    write_position,
)
from spark_jobs.jobs.load_report import LoadReport, manifest_report
from spark_jobs.jobs.load_task import (
    LoadTask,
    RangeOutcome,
    load_range,
    read_outcome,
    write_outcome,
)
from spark_jobs.log.client_errors import translate_client_errors
from spark_jobs.log.planning import LogView, Plan, TopicPosition, plan_incremental
from spark_jobs.offsets.limits import AtOffsets, Matching, Subscribed
from spark_jobs.offsets.ranges import Losses, OffsetRange, split_ranges
from spark_jobs.tables import Run, Table, open_table

KIND: Final = "load"
WORTH_A_TASK: Final = 250_000
"""Records: smaller ranges are not split, because each task adds a file per hour."""


@dataclass(frozen=True)
class LoadRequest:
    """The source and the destination of a load."""

    properties: Mapping[str, str] = field(repr=False)
    """Properties of a Kafka client; `isolation.level=read_committed` skips aborted records."""

    choice: Subscribed | Matching
    table: str
    """URI of the table."""

    may_lose: bool = False
    """Continue if the log has deleted records that were not loaded, and report how many."""

    first_start: int = EARLIEST
    """Where the first run starts: `EARLIEST` or `LATEST`. Later topics are loaded completely."""

    records_max: int = RECORDS_MAX
    codec: str = "zstd"

    @property
    def read_committed(self) -> bool:
        """Whether records of transactions are loaded only if these are committed."""
        # The client ignores case, too.
        return self.properties.get("isolation.level", "").lower() == "read_committed"


def load(request: LoadRequest, session: Callable[[], SparkSession]) -> LoadReport:
    """Load up to the current end of the log. `session` is called only if there are new records.

    Raises:
        DataLost: records or a topic were deleted before they were loaded; nothing was committed.
        TopicReplaced: a topic was recreated, so that its offsets refer to other records.
        RunSuperseded: another run committed first; the files of this one are not visible.
        InvalidOption: a topic does not exist.
        SourceFailed, StorageFailed, TasksFailed: nothing was committed; run it again.
    """
    began = time.monotonic()
    table = open_table(request.table)
    run = table.new_run(KIND)
    base = table.head()
    before = read_position(base.position)
    as_of_ms = int(time.time() * 1_000)
    plan = _plan(request, before)
    outcomes = _run_tasks(request, table, run, plan, session)
    after = advance_position(before, plan.position, plan.gone)
    report = LoadReport(
        table=request.table,
        run=run.id,
        outcomes=outcomes,
        missing=sorted(chain(plan.losses.ranges, *(each.missing for each in outcomes))),
        replaced=_replaced(before, plan),
        gone=sorted(plan.gone),
        seconds=time.monotonic() - began,
        ends={topic: sum(after[topic].offsets.values()) for topic in plan.position},
    )
    if after == before:
        return report
    version = table.commit(
        base,
        run=run,
        position=write_position(
            after, read_times(base.position) | dict.fromkeys(plan.position, as_of_ms)
        ),
        added=[file for each in outcomes for file in each.files],
        report=manifest_report(report),
        # Commits of other kinds, such as compactions, do not affect a load.
        may_rebase=lambda _: True,
    )
    return replace(report, version=version)


def _plan(request: LoadRequest, before: Mapping[str, TopicPosition]) -> Plan:
    """The ranges from the table's position to the end of the log."""
    with (
        translate_client_errors("cannot read the log"),
        RawCluster(request.properties) as cluster,
    ):
        plan = plan_incremental(
            LogView(cluster, request.choice, read_committed=request.read_committed),
            {topic: at for topic, at in before.items() if _is_chosen(topic, request.choice)},
            first_start=AtOffsets(EARLIEST if before else request.first_start),
            losses=Losses(request.may_lose),
        )
    if isinstance(request.choice, Subscribed):
        absent = set(request.choice.topics) - plan.topic_ids.keys() - before.keys()
        if absent:
            raise InvalidOption(f"--topics has {', '.join(sorted(absent))}, which does not exist")
    return plan


def _is_chosen(topic: str, choice: Subscribed | Matching) -> bool:
    if isinstance(choice, Subscribed):
        return topic in choice.topics
    return choice.pattern.search(topic) is not None


def _run_tasks(
    request: LoadRequest,
    table: Table,
    run: Run,
    plan: Plan,
    session: Callable[[], SparkSession],
) -> list[RangeOutcome]:
    """Load the ranges in Spark tasks, each exactly once.

    Raises:
        DataLost: records are missing, and the request does not allow it.
        StorageFailed: the table is not writable; raised before Spark starts if it shows here.
        TasksFailed: tasks failed after all retries; or the pipeline error that made them fail.
    """
    total = sum(each.size for each in plan.ranges)
    if total == 0:
        return []
    table.check_writable(run)
    spark = session()
    pieces = split_ranges(
        plan.ranges,
        min_partitions=min(spark.sparkContext.defaultParallelism, total // WORTH_A_TASK),
        max_records=request.records_max,
    )
    task = LoadTask(
        properties=request.properties,
        # Absolute: on executors a relative path would be another folder.
        table=table.store.uri,
        folder=run.folder,
        # Longest first, so that the last task to end is a short one.
        ranges=sorted(pieces, key=lambda each: -each.size),
        topic_ids=plan.topic_ids,
        codec=request.codec,
        may_lose=request.may_lose,
        read_committed=request.read_committed,
    )

    def load_piece(index: int) -> str:
        return write_outcome(load_range(task, task.ranges[index]))

    texts = run_in_tasks(spark, len(pieces), load_piece)
    return _checked(task.ranges, [read_outcome(text) for text in texts])


def _checked(ranges: Sequence[OffsetRange], outcomes: list[RangeOutcome]) -> list[RangeOutcome]:
    """The outcomes in the order of the log, after checking that there is one for each range."""
    errors = sorted(each.error for each in outcomes if each.error is not None)
    if errors:
        raise DataLost("\n".join(errors))
    assert Counter(each.wanted for each in outcomes) == Counter(ranges)
    for each in outcomes:
        assert each.records == sum(file.records for file in each.files)
        assert each.without_record >= 0
    return sorted(outcomes, key=lambda each: each.wanted)


def _replaced(before: Mapping[str, TopicPosition], plan: Plan) -> list[str]:
    """Topics whose offsets started again."""
    return sorted(
        topic
        for topic, now in plan.position.items()
        if topic in before and _is_replaced(before[topic], now, plan.ranges, topic)
    )


def _is_replaced(
    known: TopicPosition, now: TopicPosition, ranges: Sequence[OffsetRange], topic: str
) -> bool:
    if None not in (known.topic_id, now.topic_id):
        return known.topic_id != now.topic_id
    starts = {each.partition: each.start for each in ranges if each.topic == topic}
    return any(starts.get(number, offset) < offset for number, offset in known.offsets.items())
