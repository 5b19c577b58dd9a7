"""`rewind keys`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.domain.accounts import Scope
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/rewind.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    make_migrated(url)
    opened = Store.open(url)
    yield opened
    opened.close()


def keys(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--database", url])


def audited(result: Result) -> list[dict[str, object]]:
    """Return the audit log lines on standard error."""
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    return [line for line in lines if line["logger"] == "rewind.audit"]


def test_an_unknown_account_is_an_error_that_says_how_to_create_it(store: Store, url: str) -> None:
    result = keys(url, "create", "--account", "acmee")
    assert (result.exit_code, result.stdout, audited(result)) == (1, "", [])
    assert "account 'acmee' does not exist; `rewind accounts create acmee`" in result.stderr
    assert store.keys() == ()
    assert [account.name for account in store.accounts()] == ["default"]


def test_a_new_key_is_printed_on_standard_output_only(store: Store, url: str) -> None:
    store.create_account("acme")
    result = keys(url, "create", "--account", "acme", "--description", "laptop")
    assert result.exit_code == 0
    token = result.stdout.removesuffix("\n")
    key = store.find_key(token)
    assert key is not None
    assert (key.account.name, key.scope, key.description) == ("acme", Scope.DEVELOPER, "laptop")
    assert key.id in result.stderr
    assert token not in result.stderr


def test_an_operator_key(store: Store, url: str) -> None:
    token = keys(url, "create", "--account", "default", "--scope", "operator").stdout.strip()
    key = store.find_key(token)
    assert key is not None
    assert key.account_filter is None


def test_creating_and_revoking_is_audited(store: Store, url: str) -> None:
    store.create_account("acme")
    made = audited(keys(url, "create", "--account", "acme"))
    (key,) = store.keys()
    revoked = audited(keys(url, "revoke", key.id))
    assert [(line["action"], line["target"]) for line in made] == [("createKey", key.id)]
    assert [(line["action"], line["target"]) for line in revoked] == [("revokeKey", key.id)]
    assert {line["account_id"] for line in made + revoked} == {key.account.id}
    assert audited(keys(url, "list")) == []


def test_a_revoked_key_is_listed_as_such(store: Store, url: str) -> None:
    good, good_token = issue_key(store, "acme", Scope.DEVELOPER, "laptop")
    gone, gone_token = issue_key(store, "acme", Scope.OPERATOR, "")
    result = keys(url, "revoke", gone.id)
    assert (result.exit_code, result.stdout) == (0, "")
    assert store.find_key(gone_token) is None
    listed = keys(url, "list").stdout
    states = {line.split()[0]: line.split()[4] for line in listed.splitlines()}
    assert states == {good.id: "valid", gone.id: "revoked"}
    assert good_token not in listed
    documents = [json.loads(line) for line in keys(url, "list", "--json").stdout.splitlines()]
    assert {each["id"]: each["revokedAt"] is None for each in documents} == {
        good.id: True,
        gone.id: False,
    }
    assert documents[0].keys() >= {"accountId", "account", "scope", "description", "createdAt"}


def test_revoking_an_unknown_key_fails(store: Store, url: str) -> None:
    result = keys(url, "revoke", "key_none")
    assert (result.exit_code, audited(result)) == (1, [])
    assert "rewind: API key 'key_none' does not exist" in result.stderr


@pytest.mark.parametrize("name", ["", "a b", " a", "ä", "a" * 65, "-a", "a\n"])
def test_an_invalid_account_name_is_rejected(store: Store, url: str, name: str) -> None:
    result = keys(url, "create", "--account", name)
    assert result.exit_code == 2
    assert "invalid account name" in result.stderr
    assert store.keys() == ()


def test_a_missing_database_is_reported_in_one_line(url: str, tmp_path: Path) -> None:
    for arguments in (["list"], ["create", "--account", "acme"], ["revoke", "key_1"]):
        missing = keys(f"sqlite:///{tmp_path}/none/rewind.db", *arguments)
        assert (missing.exit_code, missing.stdout) == (1, "")
        assert missing.stderr.startswith("rewind: database does not answer")
        empty = keys(url, *arguments)
        assert empty.exit_code == 1
        assert "run `rewind migrate`" in empty.stderr


def test_control_characters_of_a_description_are_escaped(store: Store, url: str) -> None:
    issue_key(store, "acme", Scope.DEVELOPER, "\x1b[2Jgone\nkey_false  acme")
    (line,) = keys(url, "list").stdout.splitlines()
    assert "\x1b" not in line
