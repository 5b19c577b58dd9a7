"""A MariaDB server for the benchmarks, which flushes each transaction as in production."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import pymysql

from benchmarks.running_broker import until

SERVER_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
"""On Debian, servers are not in the path of ordinary users."""

DATABASE: Final = "rewind"
STOP_S: Final = 30.0


@contextmanager
def mariadb_server(folder: Path) -> Iterator[str]:
    """Run a server with its data in `folder`; yields the SQLAlchemy URL of an empty database.

    Raises:
        ClickException: the server is not installed, or does not start.
    """
    server, install = _program("mariadbd"), _program("mariadb-install-db")
    options = ["--no-defaults", f"--datadir={folder}", *_as_root()]
    subprocess.run(
        [install, *options, "--auth-root-authentication-method=normal", "--skip-test-db"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    port = _free_port()
    command = [
        server,
        *options,
        # Relative to the data folder, as the path of a socket is limited to 107 characters.
        *("--socket=s.sock", "--pid-file=pid", "--bind-address=127.0.0.1", f"--port={port}"),
    ]
    with (folder / "server.log").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        until(lambda: _is_ready(port) or process.poll() is not None, "MariaDB is ready")
        if process.poll() is not None:
            reason = (folder / "server.log").read_text(errors="replace")
            raise click.ClickException(f"MariaDB did not start:\n{reason}")
        yield f"mysql+pymysql://root@127.0.0.1:{port}/{DATABASE}"
    finally:
        process.terminate()
        process.wait(STOP_S)


def _is_ready(port: int) -> bool:
    with suppress(pymysql.err.OperationalError):
        with (
            closing(pymysql.connect(host="127.0.0.1", port=port, user="root")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        return True
    return False


def _program(name: str) -> str:
    found = shutil.which(name, path=SERVER_PATH)
    if found is None:
        raise click.ClickException(f"{name} is not installed; `make services` installs it")
    return found


def _as_root() -> list[str]:
    # The server runs as root only with this option.
    return ["--user=root"] if os.geteuid() == 0 else []


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
