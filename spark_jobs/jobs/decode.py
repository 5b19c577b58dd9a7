"""Decodes what has been loaded since the last time: Avro values become JSON, by their schemas.

    records ─▶ sift ─┬▶ quarantine, first ─▶ commit
                     └▶ decoded ───────────▶ commit

Each of both tables keeps the offsets that it has come to, so that a run which was killed between
both commits repeats nothing in either.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from spark_jobs.contracts import RECORDS
from spark_jobs.errors import TopicReplaced
from spark_jobs.jobs.load_position import went_back
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
from spark_jobs.jobs.avro_values import SCHEMAS_MAX, JsonValues, look_up
from spark_jobs.jobs.derived_tables import open_source, write_files
from spark_jobs.jobs.execution import kept, told_plainly
from spark_jobs.jobs.load_position import read_position, read_times, write_position
from spark_jobs.jobs.parsing import set_aside, sift, taken
from spark_jobs.tables import open_table

KIND: Final = "decode"

_FIELDS: Final = pa.schema([("key", pa.binary()), ("schemaId", pa.int32()), ("json", pa.string())])


class Decoded(NamedTuple):
    """What a run has decoded; the version is None where there was nothing new."""

    records: int
    quarantined: int
    schemas: int
    """Different ones that were asked for."""

    version: int | None

    def as_json(self) -> dict[str, Any]:
        """What scripts are told."""
        return self._asdict()


class _Source(NamedTuple):
    """The raw table in a version, and how far it has loaded the topics that are wanted."""

    table: Table
    head: Snapshot
    loaded: Mapping[str, TopicPosition]

    @property
    def times_ms(self) -> dict[str, int]:
        """When the log was asked for those offsets."""
        times_ms = read_times(self.head.position)
        return {topic: times_ms[topic] for topic in self.loaded}


@dataclass(frozen=True, slots=True)
class _Target:
    """A table to add to, as it was when the run began, and how far it had come."""

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

    def has(self, loaded: Mapping[str, TopicPosition]) -> bool:
        """Whether nothing was loaded that the table has not come to."""
        return self._position(loaded) == self.seen

    def add(self, rows: DataFrame, contract: StructType, source: _Source) -> tuple[int, int]:
        """Add the rows that are new to the table, by one commit; its version, and how many."""
        run = self.table.new_run()
        new = rows.where(is_new(self.seen))
        added = write_files(new, self.uri, run, contract, time="timestamp")
        version = self.table.commit(
            self.base,
            kind=KIND,
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
    """Where a run reads and writes, and which registry it asks; no topics are all of the table."""

    table: str
    decoded_table: str
    quarantine_table: str
    topics: tuple[str, ...]
    registry_url: str

    def run(self, session: Callable[[], SparkSession]) -> Decoded:
        """Decode what is new; `session` is called only if there is anything.

        Raises:
            InvalidOption: there is no raw table, it lacks a topic, or the URL is none.
            CorruptTable: a table is another job's.
            TopicReplaced: a topic was made anew, or its log was cut, since the last run.
            SourceFailed: the registry does not answer; nothing was committed.
            RunSuperseded: another run committed to one of the tables meanwhile.
            TasksFailed, StorageFailed: to be run again.
        """
        source = self._source()
        decoded = _Target.open(self.decoded_table, source.loaded)
        quarantine = _Target.open(self.quarantine_table, source.loaded)
        if decoded.has(source.loaded):
            return Decoded(0, 0, 0, None)
        spark = session()
        with told_plainly():
            records = new_records(spark, source.table, source.head, source.loaded, decoded.seen)
            schemas = look_up(self.registry_url, _schema_ids(records))
            sifted = sift(records, ("key", "value", "schemaId"), _FIELDS, JsonValues(schemas))
            with kept(sifted):
                _, unread = quarantine.add(set_aside(sifted), QUARANTINE, source)
                rows = taken(sifted).withColumn("date", sql.to_date("timestamp"))
                version, count = decoded.add(rows, DECODED, source)
        return Decoded(count, unread, len(schemas), version)

    def _source(self) -> _Source:
        table, head = open_source(self.table)
        loaded = read_position(head.position)
        for topic in self.topics:
            if topic not in loaded:
                raise InvalidOption(
                    f"topics has {topic}; {self.table} has {', '.join(sorted(loaded))}"
                )
        return _Source(table, head, {topic: loaded[topic] for topic in self.topics or loaded})


def _schema_ids(records: DataFrame) -> list[int]:
    # The column is an int32, and the id on the wire has no sign.
    unsigned = sql.col("schemaId").bitwiseAND(sql.lit(2**32 - 1)).alias("id")
    ids = records.where(sql.col("schemaId").isNotNull()).select(unsigned).distinct()
    return [row.id for row in ids.orderBy("id").limit(SCHEMAS_MAX).collect()]


Positions = Mapping[str, TopicPosition]


def require_same_topics(seen: Positions, loaded: Positions) -> None:
    """Refuse to go on behind offsets that mean other records by now.

    Raises:
        TopicReplaced: since they were read, a topic was made anew, or its log was cut.
    """
    for topic, position in seen.items():
        now = loaded.get(topic)
        if now is not None and _means_others(position, now):
            raise TopicReplaced(
                f"topic {topic} was made anew, or its log was cut, after it had been read up to "
                "here: its offsets mean other records; begin a table of its own for it"
            )


def _means_others(seen: TopicPosition, now: TopicPosition) -> bool:
    # Loads of before did not count how often logs were cut.
    return seen.is_of_another(now.topic_id) or now.cuts != seen.cuts or went_back(seen, now)


def new_records(
    spark: SparkSession, table: Table, head: Snapshot, topics: Iterable[str], seen: Positions
) -> DataFrame:
    """The records of `topics` in a version of a raw table whose offsets are not below `seen`."""
    wanted = set(topics)
    files = [each for each in head.files if each.topic in wanted and _has_new(each, seen)]
    return read_files(spark, table, files, RECORDS).where(is_new(seen))


def is_new(seen: Positions) -> "Column":
    """Whether a row's offset is not below what was seen of its partition."""
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
