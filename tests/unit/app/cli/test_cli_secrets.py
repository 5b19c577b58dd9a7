"""`rewind secrets`, and the encryption by `rewind migrate`."""

import stat
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.domain.model import NewWebhook
from app.domain.secret_keys import format_secret_key, key_id, parse_secret_keys
from app.store import Store
from app.store.secret_keys import SecretKeys
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import sqlite_url
from tests.support.database.migrated import make_migrated

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
OLD_ID, NEW_ID = key_id(OLD), key_id(NEW)


@pytest.fixture
def url(tmp_path: Path) -> str:
    make_migrated(sqlite_url(tmp_path))
    return sqlite_url(tmp_path)


def create(url: str, keys: SecretKeys) -> str:
    """Create a webhook, and return its secret."""
    with closing(Store.open(url, keys)) as store:
        new = NewWebhook("https://example.com/hook", "", new_secret())
        return store.create_webhook(new).secret


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def keys_text(*keys: bytes) -> str:
    return ",".join(map(format_secret_key, keys))


def test_a_new_key_is_printed_or_written_to_a_file(tmp_path: Path) -> None:
    printed = run("secrets", "new-key")
    assert printed.exit_code == 0
    assert len(parse_secret_keys(printed.stdout)) == 1
    assert run("secrets", "new-key").stdout != printed.stdout
    file = tmp_path / "keys" / "secret.key"
    written = run("secrets", "new-key", "--file", str(file))
    assert (written.exit_code, written.stdout) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = run("secrets", "new-key", "--file", str(file))
    assert again.exit_code == 1
    assert f"{file} exists; it is not changed" in again.stderr


def test_a_key_is_replaced_in_four_steps(url: str) -> None:
    secret = create(url, SecretKeys([OLD]))

    def status(*keys: bytes) -> list[str]:
        shown = run("secrets", "status", "--database", url, REWIND_SECRET_KEY=keys_text(*keys))
        assert shown.exit_code == 0
        return shown.stdout.splitlines()

    assert status(OLD) == [f"{OLD_ID}  encrypts  1"]
    assert status(OLD, NEW) == [f"{OLD_ID}  encrypts  1", f"{NEW_ID}  decrypts  0"]
    both = keys_text(NEW, OLD)
    done = run("secrets", "reencrypt", "--database", url, REWIND_SECRET_KEY=both)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "encrypted the secrets of 1 webhooks and notice endpoints\n"
    assert status(NEW, OLD) == [f"{NEW_ID}  encrypts  1", f"{OLD_ID}  decrypts  0"]
    with closing(Store.open(url, SecretKeys([NEW]))) as store:
        assert [each.secret for each in store.webhooks().items] == [secret]


def test_a_missing_key_is_shown_and_changes_nothing(url: str) -> None:
    create(url, SecretKeys([OLD]))
    options = ("--database", url)
    shown = run("secrets", "status", *options, REWIND_SECRET_KEY=keys_text(NEW))
    assert shown.stdout.splitlines() == [f"{NEW_ID}  encrypts  0", f"{OLD_ID}  missing  1"]
    refused = run("secrets", "reencrypt", *options, REWIND_SECRET_KEY=keys_text(NEW))
    assert refused.exit_code == 1
    assert f"encrypted with the key {OLD_ID}; configured: {NEW_ID}" in refused.stderr
    assert keys_text(NEW) not in refused.stderr


def test_migrate_encrypts_what_a_previous_version_stored(url: str) -> None:
    secret = create(url, SecretKeys())
    done = run("migrate", "--database", url, REWIND_SECRET_KEY=keys_text(OLD))
    assert done.exit_code == 0
    assert "encrypted the secrets of 1 webhooks" in done.stderr
    again = run("migrate", "--database", url, REWIND_SECRET_KEY=keys_text(OLD))
    assert "encrypted" not in again.stderr
    with closing(Store.open(url, SecretKeys([OLD]))) as store:
        assert store.count_secrets_by_key() == {OLD_ID: 1}
        assert [each.secret for each in store.webhooks().items] == [secret]


def test_a_malformed_key_is_not_shown(url: str) -> None:
    refused = run("secrets", "status", "--database", url, REWIND_SECRET_KEY="hunter2")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("rewind: REWIND_SECRET_KEY has a key that is not base64")
    assert "hunter2" not in refused.stderr


def test_two_sources_of_keys_are_rejected(url: str) -> None:
    variables = {"REWIND_SECRET_KEY": keys_text(OLD), "REWIND_SECRET_KEY_FILE": "/keys"}
    refused = run("secrets", "status", "--database", url, **variables)
    assert refused.exit_code == 2
    assert "REWIND_SECRET_KEY_FILE is '/keys' and REWIND_SECRET_KEY is given" in refused.stderr
    assert keys_text(OLD) not in refused.stderr


def test_commands_that_use_no_secret_need_no_key(url: str) -> None:
    create(url, SecretKeys([OLD]))
    for command in (
        ("accounts", "create", "acme"),
        ("keys", "create", "--account", "acme"),
        ("grants", "list", "--account", "acme"),
    ):
        result = run(*command, "--database", url)
        assert result.exit_code == 0, result.stderr
