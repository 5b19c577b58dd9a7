"""Decodes newly loaded records: converts Avro values to JSON by their schemas.

    records ─▶ parse ─┬▶ quarantine ─▶ commit, first
                      └▶ decoded ────▶ commit

Both tables store the offsets that they contain, so a run that was killed between the two commits
repeats nothing in either.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import RECORDS
from spark_jobs.errors import TopicReplaced
from spark_jobs.jobs.load_position import has_moved_back
from spark_jobs.log.planning import TopicPosition
from spark_jobs.tables import DataFile, Snapshot, Table, read_files

if TYPE_CHECKING:
    from pyspark.sql import Column


from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_jobs.contracts import DECODED, QUARANTINE
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.avro_values import SCHEMAS_MAX, JsonConverter, look_up_schemas
from spark_jobs.jobs.derived_tables import open_source, write_files
from spark_jobs.jobs.execution import cached, raise_task_errors
from spark_jobs.jobs.load_position import read_position, read_times, write_position
from spark_jobs.jobs.parsing import header, parse_records, parsed_rows, quarantine_rows
from spark_jobs.tables import open_table

KIND: Final = "decode"

_FIELDS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("schemaId", pa.int32()),
        ("json", pa.string()),
        ("accountId", pa.string()),
    ]
)
_SOURCES: Final = ("key", "value", "schemaId", "account")


class DecodeReport(NamedTuple):
    """The result of a run; the version is None if there were no new records."""

    records: int
    quarantined: int
    schemas: int
    """The number of schema ids that were looked up."""

    version: int | None

    def as_json(self) -> dict[str, Any]:
        """The result as JSON."""
        return self._asdict()


class _Source(NamedTuple):
    """A version of the raw table, and its position in the selected topics."""

    table: Table
    head: Snapshot
    loaded: Mapping[str, TopicPosition]

    @property
    def times_ms(self) -> dict[str, int]:
        """When these offsets were looked up in the log."""
        times_ms = read_times(self.head.position)
        return {topic: times_ms[topic] for topic in self.loaded}


@dataclass(frozen=True, slots=True)
class _Target:
    """An output table as it was when the run began, and its position."""

    uri: str
    table: Table
    base: Snapshot
    seen: Mapping[str, TopicPosition]

    @classmethod
    def open(cls, uri: str, loaded: Mapping[str, TopicPosition]) -> "_Target":
        table = open_table(uri)
        base = table.head()
        seen = read_position(base.position, KIND)
        require_same_topics(seen, loaded)
        return cls(uri, table, base, seen)

    def is_current(self, loaded: Mapping[str, TopicPosition]) -> bool:
        """Whether the table contains everything that was loaded."""
        return self._position(loaded) == self.seen

    def add_rows(self, rows: DataFrame, contract: StructType, source: _Source) -> tuple[int, int]:
        """Add the rows that the table lacks, in one commit; the version, and the number of rows."""
        run = self.table.new_run(KIND)
        new = rows.where(is_new(self.seen))
        added = write_files(new, self.uri, run, contract, time="timestamp")
        version = self.table.commit(
            self.base,
            run=run,
            position=write_position(
                self._position(source.loaded),
                read_times(self.base.position) | source.times_ms,
                KIND,
            ),
            added=added,
            report={"source": {"uri": source.table.store.uri, "version": source.head.version}},
        )
        return version, sum(file.records for file in added)

    def _position(self, loaded: Mapping[str, TopicPosition]) -> dict[str, TopicPosition]:
        return {**self.seen, **loaded}


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """The input and output tables, the registry and the topics; no topics mean all of the table."""

    table: str
    decoded_table: str
    quarantine_table: str
    topics: tuple[str, ...]
    registry_url: str

    def run(self, session: Callable[[], SparkSession]) -> DecodeReport:
        """Decode the new records; `session` is called only if there are any.

        Raises:
            InvalidOption: the raw table is missing or lacks a topic, or the URL is malformed.
            CorruptTable: a table belongs to another job.
            TopicReplaced: a topic was recreated or truncated since the last run.
            SourceFailed: the registry does not answer; nothing was committed.
            RunSuperseded: another run has committed to one of the tables.
            TasksFailed, StorageFailed: run it again.
        """
        source = self._source()
        decoded = _Target.open(self.decoded_table, source.loaded)
        quarantine = _Target.open(self.quarantine_table, source.loaded)
        if decoded.is_current(source.loaded):
            return DecodeReport(0, 0, 0, None)
        spark = session()
        with raise_task_errors():
            records = new_records(spark, source.table, source.head, source.loaded, decoded.seen)
            schemas = look_up_schemas(self.registry_url, _schema_ids(records))
            named = records.withColumn("account", header("account-id"))
            parsed = parse_records(named, _SOURCES, _FIELDS, JsonConverter(schemas))
            with cached(parsed):
                _, unread = quarantine.add_rows(quarantine_rows(parsed), QUARANTINE, source)
                rows = parsed_rows(parsed).withColumn("date", sql.to_date("timestamp"))
                version, count = decoded.add_rows(rows, DECODED, source)
        return DecodeReport(count, unread, len(schemas), version)

    def _source(self) -> _Source:
        table, head = open_source(self.table)
        loaded = read_position(head.position)
        for topic in self.topics:
            if topic not in loaded:
                raise InvalidOption(
                    f"--topics has {topic}; allowed are {', '.join(sorted(loaded))}"
                )
        return _Source(table, head, {topic: loaded[topic] for topic in self.topics or loaded})


def _schema_ids(records: DataFrame) -> list[int]:
    # The column is a signed int32; ids are unsigned.
    unsigned = sql.col("schemaId").bitwiseAND(sql.lit(2**32 - 1)).alias("id")
    ids = records.where(sql.col("schemaId").isNotNull()).select(unsigned).distinct()
    return [row.id for row in ids.orderBy("id").limit(SCHEMAS_MAX).collect()]


Positions = Mapping[str, TopicPosition]


def require_same_topics(seen: Positions, loaded: Positions) -> None:
    """Check that the stored offsets still refer to the same records.

    Raises:
        TopicReplaced: a topic was recreated or truncated after they were read.
    """
    for topic, position in seen.items():
        now = loaded.get(topic)
        if now is not None and _refers_to_others(position, now):
            raise TopicReplaced(
                f"topic {topic} was recreated or truncated after it was read: its offsets now "
                "refer to other records; use a new table for it"
            )


def _refers_to_others(seen: TopicPosition, now: TopicPosition) -> bool:
    # Positions of older loads have no count of truncations.
    return (
        seen.is_replaced_by(now.topic_id)
        or now.truncations != seen.truncations
        or has_moved_back(seen, now)
    )


def new_records(
    spark: SparkSession, table: Table, head: Snapshot, topics: Iterable[str], seen: Positions
) -> DataFrame:
    """The records of `topics` in a version of a raw table with offsets not below `seen`."""
    wanted = set(topics)
    files = [each for each in head.files if each.topic in wanted and _has_new(each, seen)]
    return read_files(spark, table, files, RECORDS).where(is_new(seen))


def is_new(seen: Positions) -> "Column":
    """Whether a row's offset is not below `seen` in its partition."""
    return ~reduce(or_, map(_seen_of, seen.items()), sql.lit(False))


def _seen_of(seen: tuple[str, TopicPosition]) -> "Column":
    topic, position = seen
    below = [
        (sql.col("partition") == partition) & (sql.col("offset") < offset)
        for partition, offset in position.offsets.items()
    ]
    return (sql.col("topic") == topic) & reduce(or_, below, sql.lit(False))


def _has_new(file: DataFile, seen: Positions) -> bool:
    position = None if file.topic is None else seen.get(file.topic)
    if position is None or file.partition is None or file.offset_max is None:
        return True
    return file.offset_max >= position.offsets.get(file.partition, 0)
