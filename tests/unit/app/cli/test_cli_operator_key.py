"""The file operator.key: its creation, and the commands that use it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.cli.operator_key import ensure_operator_key
from app.config import Settings
from app.domain.accounts import Scope
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    loaded = Settings.load({}, data_dir=str(tmp_path / "data"))
    make_migrated(loaded.database)
    return loaded


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    opened = Store.open(settings.database)
    yield opened
    opened.close()


def test_the_first_start_creates_a_file_with_mode_0600(settings: Settings, store: Store) -> None:
    token = ensure_operator_key(settings)
    key = store.find_key(token)
    assert key is not None
    assert key.scope is Scope.OPERATOR
    file = settings.data_dir / "operator.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == f"{token}\n"
    names = {path.name for path in settings.data_dir.iterdir()}
    assert {name for name in names if name.startswith("operator")} == {"operator.key"}


def test_later_starts_keep_the_key(settings: Settings, store: Store) -> None:
    token = ensure_operator_key(settings)
    assert ensure_operator_key(settings) == token
    assert len(store.keys()) == 1


def test_an_invalid_key_is_replaced(settings: Settings, store: Store) -> None:
    file = settings.data_dir / "operator.key"
    _, developers = issue_key(store, "acme", Scope.DEVELOPER, "")
    for invalid in ("", "no key\n", "\N{SNOWMAN}\0", f"{developers}\n"):
        file.write_text(invalid)
        token = ensure_operator_key(settings)
        key = store.find_key(token)
        assert key is not None
        assert key.account_filter is None
        store.revoke_key(key.id)
    assert ensure_operator_key(settings) != token


def test_an_unreadable_file_is_an_error(settings: Settings, store: Store) -> None:
    (settings.data_dir / "operator.key").mkdir()
    with pytest.raises(OSError, match=r"operator\.key"):
        ensure_operator_key(settings)
    assert store.keys() == ()


class RecordingServer:
    """A server that accepts every request and records its Authorization header."""

    def __init__(self) -> None:
        headers: list[str] = []
        self.authorizations = headers

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                headers.append(self.headers["authorization"])
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"accepted": 1}')

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    opened = RecordingServer()
    serving = {"poll_interval": 0.01}
    thread = threading.Thread(target=opened.server.serve_forever, kwargs=serving)
    thread.start()
    yield opened
    opened.server.shutdown()
    thread.join()
    opened.server.server_close()


def publish(server: RecordingServer, *options: str, **variables: str) -> Result:
    command = ["publish", "-", "--api-url", server.url, *options]
    return CliRunner().invoke(main, command, input=b"{}\n", env=variables)


def test_the_key_comes_from_the_option_the_variable_or_the_file(
    server: RecordingServer, settings: Settings
) -> None:
    token = ensure_operator_key(settings)
    folder = str(settings.data_dir)
    for result in (
        publish(server, "--data-dir", folder),
        publish(server, REWIND_DATA_DIR=folder),
        publish(server, REWIND_DATA_DIR=folder, REWIND_API_KEY="rwk_variable"),
        publish(server, "--api-key", "rwk_option", REWIND_API_KEY="rwk_variable"),
    ):
        assert result.exit_code == 0, result.output
    keys = [token, token, "rwk_variable", "rwk_option"]
    assert server.authorizations == [f"Bearer {key}" for key in keys]


def test_without_a_key_there_is_no_authorization_header(
    server: RecordingServer, tmp_path: Path
) -> None:
    assert publish(server, "--data-dir", str(tmp_path / "none")).exit_code == 0
    assert server.authorizations == [None]


@pytest.mark.parametrize("key", ["rwk_ü", "rwk_\n", "a b", "rwk_\x1b"])
def test_a_malformed_key_is_rejected_and_not_printed(server: RecordingServer, key: str) -> None:
    result = publish(server, REWIND_API_KEY=key)
    assert (result.exit_code, server.authorizations) == (1, [])
    assert "malformed API key" in result.stderr
    assert key not in result.stderr
