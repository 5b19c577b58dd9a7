"""`rewind accounts` and `rewind grants`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.grants import Grant
from app.domain.rules import Alternatives
from app.store import Store
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


def run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--database", url])


def audited(result: Result) -> list[tuple[object, object]]:
    """Return actions and targets of the audit log lines on standard error."""
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    return [(line["action"], line["target"]) for line in lines if line["logger"] == "rewind.audit"]


def test_an_account_is_created_once(store: Store, url: str) -> None:
    made = run(url, "accounts", "create", "acme")
    account = store.account_named("acme")
    assert (made.exit_code, made.stdout) == (0, f"{account.id}\n")
    assert audited(made) == [("createAccount", account.id)]
    again = run(url, "accounts", "create", "acme")
    assert (again.exit_code, again.stdout, audited(again)) == (1, "", [])
    assert f"account 'acme' exists; its id is '{account.id}'" in again.stderr
    assert "invalid account name" in run(url, "accounts", "create", "a b").stderr


def test_accounts_are_listed(store: Store, url: str) -> None:
    account = store.create_account("acme")
    lines = run(url, "accounts", "list").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [DEFAULT_ACCOUNT, "default"],
        [account.id, "acme"],
    ]
    documents = list(map(json.loads, run(url, "accounts", "list", "--json").stdout.splitlines()))
    assert documents[1].keys() == {"id", "account", "createdAt"}


def test_a_grant_is_put_listed_and_deleted(store: Store, url: str) -> None:
    account = store.create_account("acme")
    put = run(
        url,
        *("grants", "put", "user-42", "--account", "acme", "--event-type", "follow.*"),
        *("--event-type", "dm.sent", "--where", "data.userId=42", "--where", 'data.to="42"'),
        *("--where", "data.from=me", "--where", "data.live=true"),
    )
    assert put.exit_code == 0, put.output
    assert audited(put) == [("putGrant", f"{account.id}/user-42")]
    where = (("data.userId", 42), ("data.to", "42"), ("data.from", "me"), ("data.live", True))
    grant = Grant(account.id, "user-42", ("follow.*", "dm.sent"), where)
    assert store.grant(account.id, "user-42") == grant
    listed = run(url, "grants", "list", "--account", "acme")
    assert listed.stdout == (
        'user-42  follow.* dm.sent  data.userId=42  data.to="42"  data.from="me"  data.live=true\n'
    )
    (document,) = run(url, "grants", "list", "--account", "acme", "--json").stdout.splitlines()
    assert json.loads(document) == {
        "name": "user-42",
        "eventTypes": ["follow.*", "dm.sent"],
        "where": dict(where),
    }
    deleted = run(url, "grants", "delete", "user-42", "--account", "acme")
    assert (deleted.exit_code, audited(deleted)) == (
        0,
        [("deleteGrant", f"{account.id}/user-42")],
    )
    gone = run(url, "grants", "delete", "user-42", "--account", "acme")
    assert gone.exit_code == 1
    assert "has no grant 'user-42'" in gone.stderr


def test_a_list_in_a_grant_is_a_pattern(store: Store, url: str) -> None:
    account = store.create_account("acme")
    pattern = '[1, {"prefix": "a"}]'
    arguments = ("grants", "put", "one", "--account", "acme", "--event-type", "*")
    assert run(url, *arguments, "--where", f"data.a={pattern}").exit_code == 0
    grant = Grant(account.id, "one", ("*",), (("data.a", Alternatives(pattern)),))
    assert store.grant(account.id, "one") == grant
    assert run(url, "grants", "list", "--account", "acme").stdout == f"one  *  data.a={pattern}\n"


def test_all_grants_are_listed(store: Store, url: str) -> None:
    account = store.create_account("acme")
    names = [f"user-{number:03}" for number in range(120)]
    for name in names:
        store.put_grant(Grant(account.id, name, ("*",)))
    lines = run(url, "grants", "list", "--account", "acme").stdout.splitlines()
    assert [line.split()[0] for line in lines] == names


@pytest.mark.parametrize("command", ["put", "list", "delete"])
def test_an_unknown_account_is_an_error_that_says_how_to_create_it(
    store: Store, url: str, command: str
) -> None:
    name = [] if command == "list" else ["one"]
    types = ["--event-type", "*"] if command == "put" else []
    result = run(url, "grants", command, *name, "--account", "acmee", *types)
    assert result.exit_code == 1
    assert "account 'acmee' does not exist; `rewind accounts create acmee`" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.b", "--event-type", "*"], "name is 'a.b'"),
        (["one", "--event-type", "with space"], "eventTypes[0] is 'with space'"),
        (["one", "--event-type", "*", "--where", "data.userId"], "allowed: PATH=VALUE"),
        (["one", "--event-type", "*", "--where", "a=[[1]]"], "where.a[0] is '[1]'"),
        (["one", "--event-type", "*", "--where", "=1"], "where"),
        (["one"], "--event-type"),
    ],
)
def test_an_invalid_grant_is_rejected(
    store: Store, url: str, arguments: list[str], message: str
) -> None:
    result = run(url, "grants", "put", *arguments, "--account", "default")
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(store.grants(DEFAULT_ACCOUNT).items) == 1
