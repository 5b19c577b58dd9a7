"""A schema registry in its own process, started as an operator does."""

from pathlib import Path
from typing import Any, Self

import httpx

from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S


class RegistryProcess(ServerProcess):
    """`logbroker registry` on a log and on one port, however often it is started."""

    def __init__(
        self, folder: Path, bootstrap_servers: str, name: str = "registry", *options: str
    ) -> None:
        super().__init__([], folder / f"{name}.log")
        self._options = options
        self._bootstrap_servers = bootstrap_servers
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def launch(self) -> None:
        self._command[1:] = [
            *("-m", "logbroker", "registry"),
            *("--bootstrap-servers", self._bootstrap_servers),
            *("--listen", f"127.0.0.1:{self.port}"),
            *self._options,
        ]
        super().launch()

    def serve(self) -> Self:
        """Start the process and wait until it is ready."""
        self.start("logbroker registry ready on ")
        return self

    def ask(self, method: str, path: str, document: Any = None) -> httpx.Response:
        """Send one request and return the response."""
        # TLS is not used, and loading the certificate authorities takes longer than a request.
        return httpx.request(
            method, self.url + path, json=document, timeout=DEADLINE_S, verify=False
        )
