"""A RabbitMQ server of Debian's package, with its own node name, folders and Erlang port mapper.

Source: RabbitMQ documentation, "Configuration" and "Networking".
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.peers.peer import PeerUnavailable, find_program, server_process
from benchmarks.zookeeper_server import free_port

PACKAGE: Final = "rabbitmq-server"
USER: Final = b"guest"
PASSWORD: Final = b"guest"
"""The user that every new node has; it may connect from this machine only."""

_HOMES: Final = Path("/usr/lib/rabbitmq/lib")
_PREFIX: Final = "rabbitmq_server-"


class RabbitServer(NamedTuple):
    """A running server, and its ports for AMQP 0-9-1 and for the stream protocol."""

    process: psutil.Process
    version: str
    data_dir: Path
    amqp_port: int
    stream_port: int


@contextmanager
def rabbit_server(folder: Path) -> Iterator[RabbitServer]:
    """Run a server until the end of the block.

    Raises:
        PeerUnavailable: the package is not installed.
    """
    home = _home()
    mapper = find_program("epmd", "erlang-base")
    amqp, stream, mapper_port, node = (free_port() for _ in range(4))
    data_dir = folder / "data"
    data_dir.mkdir()
    (folder / "enabled_plugins").write_text("[rabbitmq_stream].\n")
    (folder / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\nstream.listeners.tcp.1 = 127.0.0.1:{stream}\n"
    )
    environment = os.environ | {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench-{amqp}@localhost",
        "RABBITMQ_DIST_PORT": str(node),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(data_dir),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    # Without a port mapper of our own, the server would start one that outlives it.
    with (
        server_process([mapper], folder / "epmd.log", [mapper_port], environment),
        server_process(
            [str(home / "sbin" / "rabbitmq-server")],
            folder / "server.log",
            [amqp, stream],
            environment,
        ) as process,
    ):
        version = home.name.removeprefix(_PREFIX)
        yield RabbitServer(process, version, data_dir, amqp, stream)


def _home() -> Path:
    """Return the folder of the newest installed version."""
    found = sorted(_HOMES.glob(f"{_PREFIX}*"))
    if not found:
        raise PeerUnavailable(f"RabbitMQ is not installed; Debian's package {PACKAGE} has it")
    return found[-1]
