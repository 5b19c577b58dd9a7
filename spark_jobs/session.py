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
"""Set by `spark-submit` for its program; the master is then configured."""


def open_session(
    job: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session of a job; `settings` are Spark's, and override those of `spark-submit`.

    Times are UTC. Workers on this machine run the job's Python.

    Raises:
        InvalidOption: no master is set, neither here nor by `spark-submit`.
        SparkNotStarted: Java is missing, or the master does not answer.
    """
    _require_master(master)
    conf = SparkConf()
    if master is not None:
        conf.setMaster(master)
    conf.setAppName(f"rewind-{job}")
    conf.set("spark.sql.session.timeZone", "UTC")
    # Cached frames get as few partitions as their size requires, like all others: 200 tasks per
    # step for a few thousand rows take minutes.
    conf.setIfMissing("spark.sql.optimizer.canChangeCachedPlanOutputPartitioning", "true")
    if not sys.stderr.isatty():
        # Progress bars are noise in cron mails and task logs.
        conf.setIfMissing("spark.ui.showConsoleProgress", "false")
    for name, value in (settings or {}).items():
        conf.set(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JJavaError) as failure:
        # Spark prints the cause; the exception only says that its process has ended.
        raise SparkNotStarted(
            f"Spark did not start with master {conf.get('spark.master')}; see its output above. It "
            "requires Java 17 or newer in JAVA_HOME or PATH, and a reachable master"
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
    """Yields a function that opens the session on its first call: a run may have nothing to do.

    With `spark-submit` it opens at once, because cluster managers treat a program without a session
    as failed. It is stopped at the end.

    Raises:
        InvalidOption: as `open_session`, at once.
    """
    _require_master(master)
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


def _require_master(master: str | None) -> None:
    if master is None and SUBMITTED not in os.environ and not SparkSession.getActiveSession():
        raise InvalidOption(
            "no Spark master; set one with --master or spark-submit: spark://HOST:7077, yarn, "
            "k8s://https://HOST, local[2]"
        )
