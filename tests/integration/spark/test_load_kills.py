"""Loads that are killed at any point while records are published."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from logbroker.embedded import EmbeddedBroker
from spark_jobs.jobs.load import load
from tests.support.processes.waiting import until
from tests.support.spark.loaded_table import LoadScene
from tests.support.spark.spark_session import JobProcess

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

SPARK_START_S = 180.0
"""Of a JVM, on a machine that is busy with other tests."""

DYING = str(Path(__file__).parents[2] / "support" / "processes" / "kill_at_link")
KILLED = -9


@pytest.fixture
def scene(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[LoadScene]:
    scene = LoadScene(broker.bootstrap_servers, tmp_path)
    scene.make_topic()
    scene.publish(1_000)
    with scene.publishing():
        yield scene


def no_session() -> SparkSession:
    raise AssertionError("there is nothing to do for Spark")


def launched_until_it_writes(scene: LoadScene, job: JobProcess) -> None:
    before = scene.data_files()
    job.launch()
    until(
        lambda: scene.data_files() - before or job.exit_code is not None,
        "tasks write",
        SPARK_START_S,
    )
    assert job.exit_code is None, job.output


def kill_before_commit(scene: LoadScene, name: str) -> None:
    """Kill after all files and the manifest are written, before the manifest is linked."""
    version = scene.table.head().version
    end_at(scene, name, "before-link")
    assert scene.table.head().version == version


def kill_after_commit(scene: LoadScene, name: str) -> None:
    """Kill after the commit, before it is reported."""
    version = scene.table.head().version
    end_at(scene, name, "after-link")
    assert scene.table.head().version == version + 1


def end_at(scene: LoadScene, name: str, moment: str) -> None:
    environment = {"PYTHONPATH": DYING, "DIE_AT": moment}
    before = scene.data_files()
    with scene.load_process(name, environment=environment) as job:
        job.run(SPARK_START_S)
        assert (job.exit_code, job.out) == (KILLED, ""), job.output
        job.until_gone()
    assert scene.data_files() - before


def test_a_load_continues_after_one_killed_at_its_commit(
    scene: LoadScene, spark: SparkSession
) -> None:
    for kill in (kill_before_commit, kill_after_commit):
        # There is something to commit, however slowly records are published beside it.
        scene.publish(20)
        kill(scene, kill.__name__)
        scene.load(spark)
    # The last load runs with spark-submit, as on clusters.
    scene.stop_publishing()
    scene.publish(1_000)
    with scene.load_process("submitted", submit=("--master", "local[2]")) as job:
        job.run(SPARK_START_S)
        assert job.exit_code == 0, job.output
        report = json.loads(job.out)
    assert report["records"] >= 1_000
    assert report["version"] == scene.table.head().version
    assert scene.table_records() == scene.log_records()
    # Files of dead runs are orphans, and are deleted.
    assert scene.table.delete_orphans(0).files > 0
    assert scene.data_files() == {file.path for file in scene.table.head().files}


def test_loads_killed_while_writing_lose_and_repeat_nothing(
    scene: LoadScene, spark: SparkSession
) -> None:
    """Kills all processes at once, or only the committing Python process."""
    # Enough for tasks of some seconds.
    scene.publish(60_000, value_bytes=500, step_ms=1)
    randomness = random.Random(20_261_121)
    for kill in (JobProcess.kill_all, JobProcess.kill):
        # The load before may have committed all, however slowly records are published beside it.
        scene.publish(20)
        with scene.load_process(kill.__name__) as job:
            launched_until_it_writes(scene, job)
            end_s = time.monotonic() + randomness.uniform(0.0, 1.0)
            until(lambda: time.monotonic() > end_s, "the moment of the kill")  # noqa: B023
            kill(job)
            job.until_gone()
        # A commit is complete or absent.
        loaded = scene.table_records()
        assert set(loaded.values()) <= {1}
        assert loaded <= scene.log_records()
    until_all_is_loaded(scene, spark)
    assert scene.table_records() == scene.log_records()


def until_all_is_loaded(scene: LoadScene, spark: SparkSession) -> None:
    """Load until there are no new records, after publishing has stopped."""
    scene.stop_publishing()
    while scene.load(spark).version is not None:
        pass
    assert load(scene.request(), no_session).version is None
