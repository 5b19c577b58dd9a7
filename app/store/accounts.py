"""The tables of accounts and of API keys: every statement on them."""

import secrets
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from app.domain.accounts import Account, ApiKey, Scope
from app.store.clock import now_ms
from app.store.errors import AccountNotFound, KeyNotFound
from app.store.identity import exactly, new_account_id, new_key_id
from app.store.tables import accounts, api_keys

KEY_PREFIX: Final = "rwk_"
_READ_ONLY: Final = ":read"
"""What ends the scope of a key that is read-only: a version which does not know it, and would let
the key write, cannot read the row."""

KEY_BYTES: Final = 32
"""Random bytes of a key's text: nobody can try them all, so a plain hash keeps it."""


def create_key(
    connection: Connection,
    account_name: str,
    scope: Scope,
    description: str,
    is_read_only: bool,
) -> tuple[ApiKey, str]:
    """A key of the account, which is made if it is missing, and the key's text.

    Locks the new rows. Of two who make the account at once, one begins anew and finds it.
    """
    token = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    key_id = new_key_id()
    connection.execute(
        insert(api_keys).values(
            id=key_id,
            account_id=_account_id(connection, account_name),
            scope=f"{scope}{_READ_ONLY}" if is_read_only else str(scope),
            description=description,
            digest=digest_of(token),
            created_ms=now_ms(),
        )
    )
    return _get(connection, key_id), token


def _account_id(connection: Connection, name: str) -> str:
    query = select(accounts.c.id).where(accounts.c.name == name)
    known: str | None = connection.execute(query).scalar()
    if known is not None:
        return known
    account_id = new_account_id()
    connection.execute(insert(accounts).values(id=account_id, name=name, created_ms=now_ms()))
    return account_id


def digest_of(token: str) -> str:
    """What is stored of a text that only its owner knows."""
    # What came as a header may hold anything; only what we made matches.
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


def check(connection: Connection, account_id: str) -> None:
    """Return when there is such an account.

    Raises:
        AccountNotFound: there is none.
    """
    query = select(accounts.c.id).where(exactly(accounts.c.id, account_id))
    if connection.execute(query).first() is None:
        raise AccountNotFound(account_id)


def key_of(connection: Connection, token: str) -> ApiKey | None:
    """The key with this text; None when there is none, or it was revoked."""
    query = keys().where(api_keys.c.digest == digest_of(token), api_keys.c.revoked_ms.is_(None))
    row = connection.execute(query).first()
    return None if row is None else to_key(row)


def all_keys(connection: Connection) -> tuple[ApiKey, ...]:
    """Every key, also the revoked ones, the oldest first."""
    query = keys().order_by(api_keys.c.created_ms, api_keys.c.id)
    return tuple(map(to_key, connection.execute(query)))


def revoke_key(connection: Connection, key_id: str) -> ApiKey:
    """The key, which opens nothing any more; since when stays as it was. Locks its row.

    Raises:
        KeyNotFound: no key has this id.
    """
    revoked_ms = func.coalesce(api_keys.c.revoked_ms, now_ms())
    is_it = exactly(api_keys.c.id, key_id)
    connection.execute(update(api_keys).where(is_it).values(revoked_ms=revoked_ms))
    return _get(connection, key_id)


def _get(connection: Connection, key_id: str) -> ApiKey:
    row = connection.execute(keys().where(exactly(api_keys.c.id, key_id))).first()
    if row is None:
        raise KeyNotFound(key_id)
    return to_key(row)


def keys() -> Select[Any]:
    """The rows that `to_key` reads."""
    return select(
        api_keys,
        accounts.c.name.label("account_name"),
        accounts.c.created_ms.label("account_created_ms"),
    ).join_from(api_keys, accounts)


def to_key(row: Row[Any]) -> ApiKey:
    """The value of a row of `keys`."""
    return ApiKey(
        id=row.id,
        account=Account(row.account_id, row.account_name, row.account_created_ms),
        scope=Scope(row.scope.removesuffix(_READ_ONLY)),
        description=row.description,
        created_ms=row.created_ms,
        revoked_ms=row.revoked_ms,
        is_read_only=row.scope.endswith(_READ_ONLY),
    )
