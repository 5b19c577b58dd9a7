import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from app.domain.accounts import DEFAULT_ACCOUNT, Scope
from app.store import AccountExists, AccountNotFound, KeyNotFound, Store
from app.store.engine import open_engine
from app.store.tables import api_keys
from tests.support.database.api_keys import issue_key


def test_a_key_is_found_by_its_token_with_its_account(store: Store) -> None:
    key, token = issue_key(store, "acme", Scope.DEVELOPER, "laptop")
    assert (key.account.name, key.scope, key.description) == ("acme", Scope.DEVELOPER, "laptop")
    assert key.id.startswith("key_")
    assert key.account.id.startswith("acc_")
    assert key.account_filter == key.account.id
    assert store.find_key(token) == key


def test_a_token_is_returned_once_and_stored_as_a_hash(store: Store, database_url: str) -> None:
    _, token = issue_key(store, "acme", Scope.DEVELOPER, "")
    assert token.startswith("rwk_")
    assert len(token) == 4 + 43  # 32 bytes in base64url without padding
    engine = open_engine(database_url)
    with engine.connect() as connection:
        (row,) = connection.execute(select(api_keys)).all()
    engine.dispose()
    assert row.digest == hashlib.sha256(token.encode()).hexdigest()
    assert not any(token in str(value) for value in row)


def test_two_keys_share_one_account(store: Store) -> None:
    one, one_token = issue_key(store, "acme", Scope.DEVELOPER, "one")
    two, two_token = issue_key(store, "acme", Scope.OPERATOR, "two")
    other, _ = issue_key(store, "Acme", Scope.DEVELOPER, "")
    assert one.account == two.account
    assert one.account.id != other.account.id
    assert (one.id, one_token) != (two.id, two_token)
    assert store.find_key(two_token) == two


def test_an_operator_sees_all_accounts(store: Store) -> None:
    key, _ = issue_key(store, "default", Scope.OPERATOR, "")
    assert key.account.id == DEFAULT_ACCOUNT
    assert key.account_filter is None


@pytest.mark.parametrize("token", ["", "rwk_", "rwk_é", "rwk_\udcff", "x" * 10_000])
def test_an_unknown_token_finds_no_key(store: Store, token: str) -> None:
    key, real = issue_key(store, "acme", Scope.DEVELOPER, "")
    assert store.find_key(token) is None
    assert store.find_key(real.upper()) is None
    assert store.find_key(real + " ") is None
    assert store.find_key(key.id) is None


def test_a_revoked_key_is_not_found_but_listed(store: Store) -> None:
    key, token = issue_key(store, "acme", Scope.DEVELOPER, "")
    other, other_token = issue_key(store, "acme", Scope.DEVELOPER, "")
    revoked = store.revoke_key(key.id)
    assert revoked.revoked_ms is not None
    assert revoked.revoked_ms >= key.created_ms
    assert store.find_key(token) is None
    assert store.find_key(other_token) == other
    assert set(store.keys()) == {revoked, other}


def test_revoking_twice_keeps_the_first_time(store: Store) -> None:
    key, _ = issue_key(store, "acme", Scope.DEVELOPER, "")
    assert store.revoke_key(key.id) == store.revoke_key(key.id)


@pytest.mark.parametrize("key_id", ["key_none", "", "key_ü"])
def test_an_unknown_key_cannot_be_revoked(store: Store, key_id: str) -> None:
    key, token = issue_key(store, "acme", Scope.DEVELOPER, "")
    for unknown in (key_id, key.id.upper(), key.id + " "):
        with pytest.raises(KeyNotFound, match="does not exist"):
            store.revoke_key(unknown)
    assert store.find_key(token) == key


def test_keys_are_listed_oldest_first(store: Store) -> None:
    keys = [issue_key(store, f"account {n}", Scope.DEVELOPER, str(n))[0] for n in range(5)]
    assert list(store.keys()) == sorted(keys, key=lambda key: (key.created_ms, key.id))


def test_a_key_needs_an_account_that_exists(store: Store) -> None:
    for name in ("acme", "Default", "default "):
        with pytest.raises(AccountNotFound, match="does not exist"):
            store.create_key(name, Scope.DEVELOPER, "")
    assert [account.name for account in store.accounts()] == ["default"]


def test_an_account_is_created_once_and_found_by_its_name(store: Store) -> None:
    account = store.create_account("acme")
    assert account.id.startswith("acc_")
    assert store.account_named("acme") == account
    with pytest.raises(AccountExists, match=account.id):
        store.create_account("acme")
    assert [each.name for each in store.accounts()] == ["default", "acme"]
    assert store.create_key("acme", Scope.DEVELOPER, "")[0].account == account


def test_of_concurrent_creations_of_one_account_one_succeeds(store: Store) -> None:
    def is_created(_: int) -> bool:
        try:
            store.create_account("acme")
        except AccountExists:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(is_created, range(24))) == [False] * 23 + [True]
