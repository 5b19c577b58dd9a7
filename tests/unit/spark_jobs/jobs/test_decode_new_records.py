"""Decoding after a topic was recreated or truncated."""

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import TopicReplaced
from spark_jobs.jobs.decode import KIND, DecodeJob, require_same_topics
from spark_jobs.jobs.load_position import advance_position, read_position, write_position
from spark_jobs.log.planning import TopicPosition
from spark_jobs.tables import open_table

ONE, OTHER = UUID(int=1), UUID(int=2)
SEEN = {"a": TopicPosition(ONE, {0: 10, 1: 3}, truncations=1), "b": TopicPosition(None, {0: 5})}


@pytest.mark.parametrize(
    "now",
    [
        TopicPosition(OTHER, {0: 10, 1: 3}, truncations=1),
        TopicPosition(ONE, {0: 9, 1: 3}, truncations=1),
        TopicPosition(ONE, {0: 12, 1: 3}, truncations=2),
        TopicPosition(None, {0: 12, 1: 2}, truncations=1),
    ],
    ids=str,
)
def test_positions_of_recreated_or_truncated_topics_are_rejected(now: TopicPosition) -> None:
    with pytest.raises(TopicReplaced, match="topic a was recreated or truncated"):
        require_same_topics(SEEN, {"a": now})


def test_positions_of_the_same_topics_are_accepted() -> None:
    require_same_topics(SEEN, SEEN)
    require_same_topics(SEEN, {"a": TopicPosition(ONE, {0: 12, 1: 3, 2: 1}, truncations=1)})
    require_same_topics(SEEN, {"b": TopicPosition(OTHER, {0: 5}), "c": TopicPosition(ONE, {})})


def loaded(uri: str, job: str | None, position: Mapping[str, TopicPosition]) -> None:
    table = open_table(uri)
    written = write_position(position, dict.fromkeys(position, 0), job)
    table.commit(table.head(), run=table.new_run(job or "load"), position=written, added=[])


def no_session() -> SparkSession:
    raise AssertionError("the job must stop before it opens a session")


@pytest.mark.parametrize("ends", [(5,), (5, 12)], ids=["still short", "as long again"])
def test_nothing_is_decoded_after_a_truncation(tmp_path: Path, ends: tuple[int, ...]) -> None:
    records, decoded, quarantine = (str(tmp_path / name) for name in ("raw", "decoded", "bad"))
    position = {"a": TopicPosition(ONE, {0: 10})}
    loaded(records, None, position)
    loaded(decoded, KIND, position)
    loaded(quarantine, KIND, position)
    job = DecodeJob(records, decoded, quarantine, (), "http://127.0.0.1:9")
    assert job.run(no_session).version is None
    for end in ends:
        position = advance_position(
            read_position(open_table(records).head().position), {"a": TopicPosition(ONE, {0: end})}
        )
        loaded(records, None, position)
    with pytest.raises(TopicReplaced, match="use a new table"):
        job.run(no_session)
    assert open_table(decoded).head().version == 1
