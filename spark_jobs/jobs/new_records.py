"""The records of a raw table that a job has not seen yet, by offsets."""

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
