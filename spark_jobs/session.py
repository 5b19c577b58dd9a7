"""The Spark session of a job."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.errors import InvalidOption, SparkNotStarted

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable that `spark-submit` sets for the program that it starts: it has chosen a master."""


def open_session(
    job: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of the job of a name; `settings` are Spark's, over what `spark-submit` set.

    Times are UTC. Workers on this machine run the Python that runs the job.

    Raises:
        InvalidOption: no master was named, neither here nor by `spark-submit`.
        SparkNotStarted: there is no Java, or the master does not answer.
    """
    _refuse_without(master)
    conf = SparkConf()
    if master is not None:
        conf.setMaster(master)
    conf.setAppName(f"rewind-{job}")
    conf.set("spark.sql.session.timeZone", "UTC")
    # What a job keeps goes on in as few parts as its bytes ask for, as all else does: 200 tasks for
    # each step over some thousand rows take minutes.
    conf.setIfMissing("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
    if not sys.stderr.isatty():
        # Nobody sees the bars move: in a mail of cron's, or a task's log, they are noise.
        conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    for name, value in (settings or {}).items():
        conf.set(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JJavaError) as failure:
        # It tells why on standard error, and here only that its process, or context, has ended.
        raise SparkNotStarted(
            f"Spark does not start with master {conf.get('spark.master')}: why, it says above; it "
            "needs Java 17 or newer, by JAVA_HOME or PATH, and a master that answers"
        ) from failure


@contextmanager
def running_session(
    job: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The session of `open_session`, stopped at the end."""
    session = open_session(job, master=master, settings=settings)
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def session_on_demand(
    job: str, *, master: str | None = None
) -> Iterator[Callable[[], SparkSession]]:
    """Opens the session when it is first called, since a run may find nothing to do.

    After `spark-submit` it is open from the start: managers of clusters take a program that never
    opened one for a failed one. At the end it is stopped.

    Raises:
        InvalidOption: as `open_session`, at once.
    """
    _refuse_without(master)
    opened: list[SparkSession] = []

    def session() -> SparkSession:
        if not opened:
            opened.append(open_session(job, master=master))
        return opened[0]

    if SUBMITTED in os.environ:
        session()
    try:
        yield session
    finally:
        for each in opened:
            each.stop()


def _refuse_without(master: str | None) -> None:
    if master is None and SUBMITTED not in os.environ and not SparkSession.getActiveSession():
        raise InvalidOption(
            "master is not set; allowed are Spark's, such as spark://HOST:7077, yarn, "
            "k8s://https://HOST and local[2]: by --master, or by spark-submit"
        )
