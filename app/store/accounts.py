"""The tables of accounts and API keys."""

import secrets
from collections.abc import Collection
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from app.domain.accounts import Account, ApiKey, Scope
from app.store.errors import AccountExists, AccountNotFound, KeyNotFound
from app.store.sql import IDS_PER_QUERY, exactly, new_id, now_ms
from app.store.tables import accounts, api_keys

KEY_PREFIX: Final = "rwk_"
_READ_ONLY: Final = ":read"
"""The suffix of a read-only key's scope. A version without read-only keys cannot parse such a
scope, so it cannot let the key write."""

KEY_BYTES: Final = 32
"""Random bytes of a key's token: too many to guess, so an unsalted hash is safe."""


def create_key(
    connection: Connection,
    account_name: str,
    scope: Scope,
    description: str,
    *,
    is_read_only: bool = False,
) -> tuple[ApiKey, str]:
    """Create a key of an account and return it with its token, of which only a hash is stored.

    Raises:
        AccountNotFound: no account has this name.
    """
    token = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    key_id = new_id("key_")
    connection.execute(
        insert(api_keys).values(
            id=key_id,
            account_id=find_account(connection, account_name).id,
            scope=f"{scope}{_READ_ONLY}" if is_read_only else str(scope),
            description=description,
            digest=digest_of(token),
            created_ms=now_ms(),
        )
    )
    return _get_key(connection, key_id), token


def create_account(connection: Connection, name: str) -> Account:
    """Create an account without grants. Locks the new row.

    Raises:
        AccountExists: an account has this name.
    """
    # Of two transactions that create the same account, one is retried and finds it.
    known = _find_account(connection, name)
    if known is not None:
        raise AccountExists(name, known.id)
    values = {"id": new_id("acc_"), "name": name, "created_ms": now_ms()}
    connection.execute(insert(accounts).values(values))
    return find_account(connection, name)


def find_account(connection: Connection, name: str) -> Account:
    """The account with this name.

    Raises:
        AccountNotFound: no account has this name.
    """
    found = _find_account(connection, name)
    if found is None:
        raise AccountNotFound(name)
    return found


def _find_account(connection: Connection, name: str) -> Account | None:
    row = connection.execute(select(accounts).where(exactly(accounts.c.name, name))).first()
    return None if row is None else _to_account(row)


def list_accounts(connection: Connection) -> tuple[Account, ...]:
    """All accounts, oldest first."""
    query = select(accounts).order_by(accounts.c.created_ms, accounts.c.id)
    return tuple(map(_to_account, connection.execute(query)))


def _to_account(row: Row[Any]) -> Account:
    return Account(row.id, row.name, row.created_ms)


def digest_of(token: str) -> str:
    """The hash that is stored instead of a secret token."""
    # The token may come from a request header, with any characters.
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


def check_account(connection: Connection, account_id: str) -> None:
    """Return if the account exists; accounts are never deleted.

    Raises:
        AccountNotFound: no account has this id.
    """
    query = select(accounts.c.id).where(exactly(accounts.c.id, account_id))
    if connection.execute(query).first() is None:
        raise AccountNotFound(account_id)


def find_unknown_accounts(connection: Connection, account_ids: Collection[str]) -> set[str]:
    """The ids that no account has."""
    unknown = set(account_ids)
    ids = list(unknown)
    for start in range(0, len(ids), IDS_PER_QUERY):
        query = select(accounts.c.id).where(accounts.c.id.in_(ids[start : start + IDS_PER_QUERY]))
        unknown.difference_update(connection.execute(query).scalars())
    return unknown


def find_key(connection: Connection, token: str) -> ApiKey | None:
    """The key with this token; None if the token is unknown or the key is revoked."""
    query = select_keys().where(api_keys.c.digest == digest_of(token))
    row = connection.execute(query.where(api_keys.c.revoked_ms.is_(None))).first()
    return None if row is None else to_key(row)


def list_keys(connection: Connection) -> tuple[ApiKey, ...]:
    """All keys, including revoked ones, oldest first."""
    query = select_keys().order_by(api_keys.c.created_ms, api_keys.c.id)
    return tuple(map(to_key, connection.execute(query)))


def revoke_key(connection: Connection, key_id: str) -> ApiKey:
    """Revoke the key and return it; a second call keeps the first time. Locks its row.

    Raises:
        KeyNotFound: no key has this id.
    """
    revoked_ms = func.coalesce(api_keys.c.revoked_ms, now_ms())
    is_key = exactly(api_keys.c.id, key_id)
    connection.execute(update(api_keys).where(is_key).values(revoked_ms=revoked_ms))
    return _get_key(connection, key_id)


def _get_key(connection: Connection, key_id: str) -> ApiKey:
    row = connection.execute(select_keys().where(exactly(api_keys.c.id, key_id))).first()
    if row is None:
        raise KeyNotFound(key_id)
    return to_key(row)


def select_keys() -> Select[Any]:
    """The query whose rows `to_key` reads."""
    return select(
        api_keys,
        accounts.c.name.label("account_name"),
        accounts.c.created_ms.label("account_created_ms"),
    ).join_from(api_keys, accounts)


def to_key(row: Row[Any]) -> ApiKey:
    """The key of a row of `select_keys`."""
    return ApiKey(
        id=row.id,
        account=Account(row.account_id, row.account_name, row.account_created_ms),
        scope=Scope(row.scope.removesuffix(_READ_ONLY)),
        description=row.description,
        created_ms=row.created_ms,
        revoked_ms=row.revoked_ms,
        is_read_only=row.scope.endswith(_READ_ONLY),
    )
