"""A Spark whose tasks run in another JVM, shared by the tests of a process; jobs as processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

import psutil
from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

import spark_jobs
from tests.support.kafka.zookeeper import QUICK_START
from tests.support.processes.server_process import ServerProcess, require_program
from tests.support.processes.waiting import DEADLINE_S, until

LOCAL_CLUSTER: Final = "local-cluster[1,2,1024]"
"""One worker of two cores, whose executor is a JVM of its own. It runs two tasks at a time, and is
replaced when it dies. A second one would load all classes once more.
"""

EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_QUICK: Final = " ".join(QUICK_START)
_DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.executor.memory": "640m",
    # Code generation pays off for millions of rows, not for ten.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOGGING: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def spark_environment(folder: Path) -> dict[str, str]:
    """The environment of a Spark that writes only to `folder` and starts quickly."""
    require_program("java", "openjdk-17-jre-headless")
    home = folder / "spark"
    (home / "conf").mkdir(parents=True)
    # Workers keep files of executors in SPARK_HOME/work, so each session has its own home.
    # It lacks `python`, an archive of PySpark that each worker would compile: PySpark is
    # installed in the tests' environment.
    for part in Path(_find_spark_home()).iterdir():
        if part.name not in ("conf", "python", "work"):
            (home / part.name).symlink_to(part)
    places = {"spark.local.dir": folder / "local", "spark.sql.warehouse.dir": folder / "warehouse"}
    lines = [f"{name} {value}" for name, value in (_DEFAULTS | places).items()]
    (home / "conf/spark-defaults.conf").write_text("\n".join(lines) + "\n")
    (home / "conf/log4j2.properties").write_text(_LOGGING)
    return {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_HOME": str(home),
    }


@contextmanager
def running_spark(folder: Path) -> Iterator[SparkSession]:
    """A session on `LOCAL_CLUSTER`, whose processes end with the context."""
    before = dict(os.environ)
    # Executors import test functions from the path of pytest.
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    os.environ.update(spark_environment(folder) | path)
    try:
        builder = SparkSession.builder.master(LOCAL_CLUSTER).appName("tests")
        yield builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    finally:
        _end_spark()
        os.environ.clear()
        os.environ.update(before)


def _end_spark() -> None:
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    family = psutil.Process(gateway.proc.pid).children(recursive=True)
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()
    gateway.shutdown()
    # The JVM exits when its standard input is closed.
    gateway.proc.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(DEADLINE_S)
    gateway.proc.kill()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
    _kill(family)


def executors(spark: SparkSession) -> list[psutil.Process]:
    """The executor JVMs of a session on this machine."""
    assert spark.sparkContext._gateway is not None
    driver = psutil.Process(spark.sparkContext._gateway.proc.pid)
    return [process for process in driver.children(recursive=True) if _is_executor(process)]


def kill_executor(spark: SparkSession) -> None:
    """Kill the executor; its worker starts another."""
    _kill(executors(spark))


def kill_python_workers(spark: SparkSession) -> None:
    """Kill all Python workers; their executors survive."""
    _kill([each for executor in executors(spark) for each in executor.children(recursive=True)])


class JobProcess(ServerProcess):
    """A process of `rewind-jobs ARGUMENTS` with its own Spark.

    Its standard output is the file `out`, its standard error `output`. A context manager: at its
    end the process and all that it started are gone.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        submit: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """With `submit`, the process is started by `spark-submit` with these options."""
        folder.mkdir(parents=True)
        surroundings = {**spark_environment(folder), **(environment or {})}
        super().__init__(["-m", "spark_jobs", *arguments], folder / "output", surroundings)
        if submit is not None:
            program = f"{surroundings['SPARK_HOME']}/bin/spark-submit"
            self._command = [
                program,
                *submit,
                str(Path(spark_jobs.__file__).parent / "__main__.py"),
                *arguments,
            ]
        self._out = folder / "out"

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    @property
    def out(self) -> str:
        """Standard output so far."""
        return self._out.read_text()

    def launch(self) -> None:
        """Start the process and do not wait."""
        with self._output_file.open("w") as file, self._out.open("w") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=file,
                env=self._environment,
                # Its children are found by their session, also after its end.
                start_new_session=True,
            )

    def run(self, deadline_s: float = DEADLINE_S * 3) -> Self:
        """Start the process and wait for its end."""
        self.launch()
        try:
            self.wait(deadline_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"never ended: {self.output}") from error
        return self

    def kill_all(self) -> None:
        """Kill the job's Python, its JVM and all their children at once."""
        if self._process is None:
            return
        assert isinstance(self._process, subprocess.Popen)
        _kill(self.family())
        self._process.wait()

    def until_gone(self) -> None:
        """Wait until all processes of the job have ended by themselves."""
        until(lambda: not self.family(), "the whole job has ended")

    def family(self) -> list[psutil.Process]:
        """The running processes of the job's session."""
        found = []
        for pid in psutil.pids():
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(pid) == self.pid:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return any(EXECUTOR in word for word in process.cmdline())
    return False


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(processes, DEADLINE_S)
