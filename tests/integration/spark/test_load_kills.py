"""Loads that are killed wherever it is, while records go on coming in."""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from load_scene import LoadScene
from processes import until
from pyspark.sql import SparkSession
from spark_session import JobProcess

from logbroker.embedded import EmbeddedBroker
from spark_jobs.jobs.load import load

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

SPARK_START_S = 180.0
"""Of a JVM, on a machine that is busy with other tests."""

DYING = str(Path(__file__).parents[2] / "dying")
KILLED = -9


@pytest.fixture
def scene(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[LoadScene]:
    scene = LoadScene(broker.bootstrap_servers, tmp_path)
    scene.make_topic()
    # Enough for tasks that take their time.
    scene.publish(60_000, value_bytes=500, step_ms=1)
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
    assert job.exit_code is None, job.said


def kill_whole(scene: LoadScene, name: str) -> None:
    """Driver, JVM and tasks die at once, while tasks write."""
    with scene.load_process(name) as job:
        launched_until_it_writes(scene, job)
        job.kill_all()


def kill_driver(scene: LoadScene, name: str) -> None:
    """The Python that would commit dies, while tasks write; the others notice, and end."""
    with scene.load_process(name) as job:
        launched_until_it_writes(scene, job)
        job.kill()
        job.until_gone()


def kill_before_commit(scene: LoadScene, name: str) -> None:
    """All data are there, and the manifest is written, but not linked under its name."""
    version = scene.table.head().version
    end_at(scene, name, "before-link")
    assert scene.table.head().version == version


def kill_after_commit(scene: LoadScene, name: str) -> None:
    """The commit is there, and nobody was told of it."""
    version = scene.table.head().version
    end_at(scene, name, "after-link")
    assert scene.table.head().version == version + 1


def end_at(scene: LoadScene, name: str, moment: str) -> None:
    environment = {"PYTHONPATH": DYING, "DIE_AT": moment}
    before = scene.data_files()
    with scene.load_process(name, environment=environment) as job:
        job.run(SPARK_START_S)
        assert (job.exit_code, job.out) == (KILLED, ""), job.said
        job.until_gone()
    assert scene.data_files() - before


@pytest.mark.parametrize(
    "kills",
    [(kill_whole, kill_before_commit), (kill_driver, kill_after_commit)],
    ids=["data alone", "JVM alone, commit alone"],
)
def test_a_load_after_one_that_was_killed_ends_with_the_log(
    scene: LoadScene, spark: SparkSession, kills: tuple[Callable[[LoadScene, str], None], ...]
) -> None:
    for kill in kills:
        kill(scene, kill.__name__)
        scene.load(spark)
    until_all_is_loaded(scene, spark)
    assert scene.in_table() == scene.in_log()
    # What the dead left is nobody's, and goes.
    assert scene.table.collect_orphans(0).files > 0
    assert scene.data_files() == {file.path for file in scene.table.head().files}


def test_loads_killed_at_random_end_with_the_exact_records_of_the_log(
    scene: LoadScene, spark: SparkSession
) -> None:
    chance = random.Random(20_261_121)
    for number in range(3):
        with scene.load_process(f"random {number}") as job:
            launched_until_it_writes(scene, job)
            end_s = time.monotonic() + chance.uniform(0.0, 2.0)
            until(lambda: time.monotonic() > end_s, "the moment of the kill")  # noqa: B023
            chance.choice([job.kill_all, job.kill])()
            job.until_gone()
        # Whatever was committed of it, it was committed whole.
        loaded = scene.in_table()
        assert set(loaded.values()) <= {1}
        assert loaded <= scene.in_log()
    until_all_is_loaded(scene, spark)
    assert scene.in_table() == scene.in_log()


def test_spark_submit_runs_a_load(scene: LoadScene) -> None:
    with scene.load_process("submitted", submit=("--master", "local[2]")) as job:
        job.run(SPARK_START_S)
        assert job.exit_code == 0, job.said
        report = json.loads(job.out)
    assert (report["version"], report["files"]) == (1, len(scene.table.head().files))
    assert report["records"] == sum(scene.in_table().values()) >= 60_000


def until_all_is_loaded(scene: LoadScene, spark: SparkSession) -> None:
    """Load until nothing came in meanwhile, once nobody publishes any more."""
    scene.stop_publishing()
    while scene.load(spark).version is not None:
        pass
    assert load(scene.request(), no_session).version is None
