"""Processes without the key of stored secrets refuse to start, and log no key."""

from contextlib import closing
from pathlib import Path

import pytest

from app.domain.model import NewWebhook
from app.domain.secret_keys import format_secret_key, key_id
from app.store import Store
from app.store.secret_keys import SecretKeys
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import sqlite_url
from tests.support.database.migrated import make_migrated
from tests.support.processes.server_process import ServerProcess

USED, OTHER = bytes(range(32)), bytes(range(32, 64))


@pytest.mark.parametrize("command", ["api", "live", "worker"])
def test_a_process_with_another_key_refuses_to_start(command: str, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    make_migrated(url)
    with closing(Store.open(url, SecretKeys([USED]))) as store:
        store.create_webhook(NewWebhook("https://example.com/hook", "", new_secret()))
    environment = {
        "REWIND_DATABASE": url,
        "REWIND_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "REWIND_SECRET_KEY": format_secret_key(OTHER),
        "REWIND_PORT": "0",
    }
    with ServerProcess(["-m", "app", command], tmp_path / "said", environment) as process:
        process.launch()
        assert process.wait() == 1
        assert '"event": "cannot-start"' in process.output
        reason = f"encrypted with the key {key_id(USED)}; configured: {key_id(OTHER)}."
        assert reason in process.output
        assert format_secret_key(OTHER) not in process.output
        assert "Traceback" not in process.output


@pytest.mark.parametrize("command", ["api", "live", "worker"])
def test_a_process_on_a_server_needs_a_key(command: str, tmp_path: Path) -> None:
    environment = {
        "REWIND_DATABASE": "mysql+pymysql://rewind@127.0.0.1:1/rewind",
        "REWIND_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "REWIND_SECRET_KEY": "",
    }
    with ServerProcess(["-m", "app", command], tmp_path / "said", environment) as process:
        process.launch()
        assert process.wait() == 1
        assert "no key for the secrets of webhooks; set REWIND_SECRET_KEY_FILE" in process.output
        assert "Traceback" not in process.output
