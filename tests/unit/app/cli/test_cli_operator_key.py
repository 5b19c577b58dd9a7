"""The file operator.key: who makes it, and which commands show it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main, operator_key
from app.config import Settings
from app.domain.accounts import Scope
from app.store import Store
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


def test_the_first_start_makes_a_key_that_only_its_owner_can_read(
    settings: Settings, store: Store
) -> None:
    token = operator_key.ensure(settings)
    key = store.find_key(token)
    assert key is not None
    assert key.scope is Scope.OPERATOR
    file = settings.data_dir / "operator.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == f"{token}\n"
    names = {path.name for path in settings.data_dir.iterdir()}
    assert {name for name in names if name.startswith("operator")} == {"operator.key"}


def test_later_starts_keep_the_key(settings: Settings, store: Store) -> None:
    token = operator_key.ensure(settings)
    assert operator_key.ensure(settings) == token
    assert len(store.keys()) == 1


def test_a_key_that_opens_nothing_is_replaced(settings: Settings, store: Store) -> None:
    file = settings.data_dir / "operator.key"
    _, developers = store.create_key("acme", Scope.DEVELOPER, "")
    for useless in ("", "no key\n", "\N{SNOWMAN}\0", f"{developers}\n"):
        file.write_text(useless)
        token = operator_key.ensure(settings)
        key = store.find_key(token)
        assert key is not None
        assert key.sees is None
        store.revoke_key(key.id)
    assert operator_key.ensure(settings) != token


def test_a_file_that_cannot_be_read_is_left_alone(settings: Settings, store: Store) -> None:
    (settings.data_dir / "operator.key").mkdir()
    with pytest.raises(OSError, match=r"operator\.key"):
        operator_key.ensure(settings)
    assert store.keys() == ()


class Door:
    """A server that takes every request and keeps the keys it was shown."""

    def __init__(self) -> None:
        shown: list[str] = []
        self.shown = shown

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                shown.append(self.headers["authorization"])
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"accepted": 1}')

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def door() -> Iterator[Door]:
    opened = Door()
    serving = {"poll_interval": 0.01}
    thread = threading.Thread(target=opened.server.serve_forever, kwargs=serving)
    thread.start()
    yield opened
    opened.server.shutdown()
    thread.join()
    opened.server.server_close()


def publish(door: Door, *options: str, **variables: str) -> Result:
    command = ["publish", "-", "--api-url", door.url, *options]
    return CliRunner().invoke(main, command, input=b"{}\n", env=variables)


def test_a_command_shows_the_key_of_its_option_its_variable_or_its_folder(
    door: Door, settings: Settings
) -> None:
    token = operator_key.ensure(settings)
    folder = str(settings.data_dir)
    for result in (
        publish(door, "--data-dir", folder),
        publish(door, REWIND_DATA_DIR=folder),
        publish(door, REWIND_DATA_DIR=folder, REWIND_API_KEY="rwk_variable"),
        publish(door, "--api-key", "rwk_option", REWIND_API_KEY="rwk_variable"),
    ):
        assert result.exit_code == 0, result.output
    keys = [token, token, "rwk_variable", "rwk_option"]
    assert door.shown == [f"Bearer {key}" for key in keys]


def test_a_command_without_a_key_shows_none(door: Door, tmp_path: Path) -> None:
    assert publish(door, "--data-dir", str(tmp_path / "none")).exit_code == 0
    assert door.shown == [None]


@pytest.mark.parametrize("key", ["rwk_ü", "rwk_\n", "a b", "rwk_\x1b"])
def test_what_cannot_be_a_key_is_refused_and_not_shown(door: Door, key: str) -> None:
    result = publish(door, REWIND_API_KEY=key)
    assert (result.exit_code, door.shown) == (1, [])
    assert "holds no API key" in result.stderr
    assert key not in result.stderr
