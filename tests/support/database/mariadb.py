"""A MariaDB server in a temporary folder on a free port, killed at the end."""

import itertools
import os
import shutil
import subprocess
import time
from pathlib import Path

import pymysql
import pytest

from tests.support.http.certificates import CertificateFiles
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S

# Debian's PATH of ordinary users has no servers.
SERVER_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def require_mariadb() -> None:
    """Skip the test if no server is installed. In CI, fail."""
    if find_program("mariadbd") and find_program("mariadb-install-db"):
        return
    reason = "mariadbd is not installed; `make services` installs it"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def find_program(name: str) -> str | None:
    """Return the path of a program, also if only root's PATH has it."""
    return shutil.which(name, path=SERVER_PATH)


class MariaDbServer:
    """One server process. Its databases are empty until a test migrates them.

    With a certificate, clients may use TLS.
    """

    def __init__(self, certificate: CertificateFiles | None = None) -> None:
        self.port = 0
        self._certificate = certificate
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)

    def start(self, folder: Path) -> None:
        """Start the server on `folder`, initialized if empty. It is ready on return."""
        self._folder = folder
        # A socket's path is limited to 107 characters, so it is relative to the data folder.
        folder.mkdir(parents=True, exist_ok=True)
        self._temporary_folder.mkdir(exist_ok=True)
        if not (folder / "mysql").exists():
            self._install()
        self.port = self.port or free_port()
        self._process = self._launch()
        self._wait_until_ready()

    @property
    def _temporary_folder(self) -> Path:
        # In a shared folder, files of a killed server would collide with those of a later one.
        return self._folder.with_name(f"{self._folder.name}-tmp")

    def _install(self) -> None:
        subprocess.run(
            [
                find_program("mariadb-install-db") or "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self._folder}",
                f"--tmpdir={self._temporary_folder}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-log-file-size=8M",
                *self._user(),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [
            find_program("mariadbd") or "mariadbd",
            "--no-defaults",
            f"--datadir={self._folder}",
            f"--tmpdir={self._temporary_folder}",
            "--socket=s.sock",
            "--pid-file=pid",
            "--bind-address=127.0.0.1",
            f"--port={self.port}",
            "--skip-name-resolve",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=8M",
            # Commits survive a killed server without a flush: no test crashes the machine.
            "--innodb-flush-log-at-trx-commit=2",
            "--performance-schema=0",
            *self._user(),
        ]
        if self._certificate is not None:
            command.append(f"--ssl-cert={self._certificate.certificate}")
            command.append(f"--ssl-key={self._certificate.key}")
        with (self._folder / "server.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _user(self) -> list[str]:
        # The server refuses to run as root without this option.
        return ["--user=root"] if os.geteuid() == 0 else []

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not self._answers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "server.log").read_text(errors="replace")
                raise RuntimeError(f"MariaDB did not start:\n{log[-4_000:]}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            self._connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _connect(self) -> "pymysql.Connection[pymysql.cursors.Cursor]":
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", ssl_disabled=True)

    def create_database(self) -> str:
        """Create an empty database and return its SQLAlchemy URL."""
        name = f"rewind_{next(self._numbers)}"
        connection = self._connect()
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        connection.close()
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/{name}"

    def kill(self) -> None:
        """Kill the process. `start` recovers its folder."""
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
