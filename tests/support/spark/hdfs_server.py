"""An HDFS cluster for tests: a name node and a data node in one JVM."""

import json
import subprocess
from pathlib import Path
from typing import Final, Self

from tests.support.kafka.zookeeper import QUICK_START, find_java
from tests.support.processes.maven_jars import DOWNLOAD_S, LOG4J_TO_STDERR, require_jars
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import until

VERSION: Final = "3.4.1"
JAVA_LEAST: Final = 8
TEST_TIMEOUT_S: Final = DOWNLOAD_S + 600
"""For every test that may be the first one here."""

READY_S: Final = 150.0
"""It loads some thousand classes, on a machine that may be busy with other tests."""

START_ATTEMPTS: Final = 10
_HADOOP: Final = "org.apache.hadoop"
_DEPENDENCIES: Final = (
    f"{_HADOOP}:hadoop-common:{VERSION}",
    f"{_HADOOP}:hadoop-common:{VERSION}:test-jar",
    f"{_HADOOP}:hadoop-hdfs:{VERSION}",
    f"{_HADOOP}:hadoop-hdfs:{VERSION}:test-jar",
    f"{_HADOOP}:hadoop-hdfs-client:{VERSION}",
    # Maven would choose an incompatible older version.
    "com.fasterxml.jackson.core:jackson-core:2.12.7",
    # Dependencies of Hadoop's test cluster.
    "junit:junit:4.13.2",
    "org.mockito:mockito-core:2.28.2",
)


def require_hdfs() -> Path:
    """The folder of the jars; skips the test if Maven Central is unreachable."""
    return require_jars(f"hdfs-{VERSION}", _DEPENDENCIES, java_least=JAVA_LEAST)


class HdfsServer:
    """A cluster of one name node and one data node; a restart keeps port and files.

    A context manager: at its end the process is gone.
    """

    def __init__(self, folder: Path) -> None:
        self._jars = require_hdfs()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def uri(self) -> str:
        """The URI of the root folder, without a trailing `/`."""
        return f"hdfs://127.0.0.1:{self._port}"

    @property
    def output(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the servers; they are ready on return."""
        for _ in range(START_ATTEMPTS):
            self._launch(is_new=not self._port)
            until(lambda: self._is_ready() or not self._runs(), "HDFS is ready", READY_S)
            if self._runs():
                return
            assert "BindException" in self.output, self.output[-4_000:]
            self._port = 0
        raise AssertionError("HDFS found no free port")

    def kill(self) -> None:
        """Kill the servers; `start` finds their files again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _launch(self, *, is_new: bool) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "log4j.properties").write_text(LOG4J_TO_STDERR)
        self._details.unlink(missing_ok=True)
        if is_new:
            self._port = free_port()
        with (self._folder / "server.log").open("wb") as file:
            self._process = subprocess.Popen(
                [*self._java(), *self._options(), *(["-format"] if is_new else [])],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    @property
    def _details(self) -> Path:
        """Written once all is up."""
        return self._folder / "details.json"

    def _is_ready(self) -> bool:
        try:
            return bool(json.loads(self._details.read_text())["namenode_port"] == self._port)
        except (FileNotFoundError, json.JSONDecodeError):
            return False

    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _java(self) -> list[str]:
        return [
            find_java(),
            *("-Xmx256m", *QUICK_START),
            "-Djava.net.preferIPv4Stack=true",
            f"-Dlog4j.configuration=file:{self._folder}/log4j.properties",
            f"-Dtest.build.data={self._folder}/data",
            *("-cp", f"{self._jars}/*", "org.apache.hadoop.test.MiniDFSClusterManager"),
        ]

    def _options(self) -> list[str]:
        return [
            *("-datanodes", "1", "-nnport", str(self._port)),
            *("-writeDetails", str(self._details)),
        ]
