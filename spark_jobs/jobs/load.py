"""The nightly load: what the log has had since the last one, as Parquet by topic, day and hour.

    position of the last commit ─▶ ranges, fixed ─▶ tasks: read, decode, write ─▶ one commit

The commit makes data and offsets visible together. Whatever dies before leaves files that nobody
reads; the next run begins where the last commit ended. The driver holds a row for each range and a
name for each file. Files are bounded, too: by bytes for each, by hours for each range.

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
from spark_jobs.jobs.execution import told_plainly
from spark_jobs.jobs.load_position import moved_on, read_position, read_times, write_position
from spark_jobs.jobs.load_report import LoadReport, facts
from spark_jobs.jobs.load_task import (
    OUTCOME_SCHEMA,
    LoadTask,
    RangeOutcome,
    read_outcome,
    runner,
)
from spark_jobs.log.client_errors import translated
from spark_jobs.log.planning import LogView, Plan, TopicPosition, plan_onward
from spark_jobs.offsets.limits import AtOffsets, Matching, Subscribed
from spark_jobs.offsets.ranges import Losses, OffsetRange, split
from spark_jobs.tables import Run, Table, open_table

KIND: Final = "load"
WORTH_A_TASK: Final = 250_000
"""Records: fewer are not shared out, since each task adds a file for each hour."""


@dataclass(frozen=True)
class LoadRequest:
    """What to load, and where to."""

    properties: Mapping[str, str] = field(repr=False)
    """Of a Kafka client; with `isolation.level` of read_committed, aborted records are left out."""

    choice: Subscribed | Matching
    table: str
    """Its URI."""

    may_lose: bool = False
    """Go on when the log has deleted what is due, and tell how much that was."""

    first_start: int = EARLIEST
    """Where the first run begins, or `LATEST`; what comes up later is loaded as a whole."""

    records_max: int = RECORDS_MAX
    codec: str = "zstd"

    @property
    def read_committed(self) -> bool:
        """Whether records of transactions count only once these are committed."""
        # In whatever case, as the client itself takes it.
        return self.properties.get("isolation.level", "").lower() == "read_committed"


def load(request: LoadRequest, session: Callable[[], SparkSession]) -> LoadReport:
    """Load up to the end that the log has now. `session` is called only if there is anything.

    Raises:
        DataLost: the log has deleted what is due, or a topic; nothing was committed.
        TopicReplaced: a topic was made anew, so that its offsets mean other records.
        RunSuperseded: another run committed first; what this one wrote is not visible.
        InvalidOption: a topic is not there.
        SourceFailed, StorageFailed, TasksFailed: nothing was committed; to be run again.
    """
    began = time.monotonic()
    table = open_table(request.table)
    run = table.new_run()
    base = table.head()
    before = read_position(base.position)
    as_of_ms = int(time.time() * 1_000)
    plan = _plan(request, before)
    outcomes = _run_tasks(request, table, run, plan, session)
    after = moved_on(before, plan.position, plan.gone)
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
        kind=KIND,
        run=run,
        position=write_position(
            after, read_times(base.position) | dict.fromkeys(plan.position, as_of_ms)
        ),
        added=[file for each in outcomes for file in each.files],
        report=facts(report),
        # What others did without consuming anything, such as a compaction, changes nothing here.
        may_rebase=lambda _: True,
    )
    return replace(report, version=version)


def _plan(request: LoadRequest, before: Mapping[str, TopicPosition]) -> Plan:
    """The ranges from where the table ends to where the log ends."""
    with translated("the log cannot be read"), RawCluster(request.properties) as cluster:
        plan = plan_onward(
            LogView(cluster, request.choice, read_committed=request.read_committed),
            {topic: at for topic, at in before.items() if _is_chosen(topic, request.choice)},
            first_start=AtOffsets(EARLIEST if before else request.first_start),
            losses=Losses(request.may_lose),
        )
    if isinstance(request.choice, Subscribed):
        absent = set(request.choice.topics) - plan.topic_ids.keys() - before.keys()
        if absent:
            raise InvalidOption(f"topics has {', '.join(sorted(absent))}: there is no such topic")
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
    """Have the ranges loaded: each once, whatever happened to the tasks meanwhile.

    Raises:
        DataLost: something is missing, and nothing may be.
        StorageFailed: the table cannot be written; before Spark is started, if that is seen here.
        TasksFailed: Spark has given up; or what made it, as an error of its own.
    """
    total = sum(each.size for each in plan.ranges)
    if total == 0:
        return []
    table.try_folder(run)
    spark = session()
    pieces = split(
        plan.ranges,
        min_partitions=min(spark.sparkContext.defaultParallelism, total // WORTH_A_TASK),
        max_records=request.records_max,
    )
    task = LoadTask(
        properties=request.properties,
        # As the driver understands it: a relative path would be another folder where tasks run.
        table=table.store.uri,
        folder=run.folder,
        # What takes longest goes first, so that no task is alone at the end.
        ranges=sorted(pieces, key=lambda each: -each.size),
        topic_ids=plan.topic_ids,
        codec=request.codec,
        may_lose=request.may_lose,
        read_committed=request.read_committed,
    )
    with told_plainly():
        indexes = spark.range(0, len(pieces), 1, len(pieces))
        rows = indexes.mapInArrow(runner(task), OUTCOME_SCHEMA).collect()
    return _checked(task.ranges, [read_outcome(row.outcome) for row in rows])


def _checked(ranges: Sequence[OffsetRange], outcomes: list[RangeOutcome]) -> list[RangeOutcome]:
    """The outcomes, in the order of the log, if there is one for each range."""
    refusals = sorted(each.refusal for each in outcomes if each.refusal is not None)
    if refusals:
        raise DataLost("\n".join(refusals))
    assert Counter(each.wanted for each in outcomes) == Counter(ranges)
    for each in outcomes:
        assert each.records == sum(file.records for file in each.files)
        assert each.without_record >= 0
    return sorted(outcomes, key=lambda each: each.wanted)


def _replaced(before: Mapping[str, TopicPosition], plan: Plan) -> list[str]:
    """Topics whose offsets have begun again."""
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
