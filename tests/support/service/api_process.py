"""The API in its own process, with a database and API keys."""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

import httpx

from app.config import Settings
from app.domain.accounts import Scope
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.api_clients import client_at
from tests.support.processes.server_process import SECRET_KEY, ServerProcess

PROGRAM = """
import sys
from app.api.application import create_app
from app.config import Settings
from app.http.server import serve
sys.exit(serve(Settings.model_validate_json(sys.argv[1]), create_app))
"""


class ApiProcess:
    """An API on a free port. `store` opens its database. A context manager."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings.model_copy(update={"port": 0, "secret_key": SECRET_KEY})
        self._output_file = folder / "api.stderr"
        self._open = ExitStack()

    def __enter__(self) -> Self:
        make_migrated(self.settings.database)
        self.store = self._open.enter_context(closing(Store.of(self.settings)))
        self.process = self._open.enter_context(
            ServerProcess(["-c", PROGRAM, self.settings.model_dump_json()], self._output_file)
        )
        self.url = self.process.start("rewind api ready on ").strip()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def client(self, scope: Scope = Scope.OPERATOR, account: str = "platform") -> httpx.Client:
        """Return a client with a new key of an account. It is closed with the API."""
        _, token = issue_key(self.store, account, scope, "")
        return self._open.enter_context(client_at(self.url, token))
