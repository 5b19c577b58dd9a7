"""Encryption of stored secrets with another key, and of those that are stored as text.

A change of the key does not change the routing table: secrets stay the same. Each transaction
locks the rows of up to `IDS_PER_QUERY` webhooks or notice endpoints.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    case,
    func,
    or_,
    select,
    update,
)

from app.domain.secret_keys import ID_CHARS
from app.store.errors import SecretKeyMissing
from app.store.notice_tables import notice_endpoints
from app.store.secret_keys import MARK, keys_of
from app.store.sql import IDS_PER_QUERY
from app.store.tables import webhooks

TEXT: Final = ""
"""Stands for the key of secrets that are stored as text."""

SECRET_COLUMNS: Final[Mapping[Table, tuple[Column[Any], ...]]] = {
    webhooks: (webhooks.c.secret, webhooks.c.previous_secret, webhooks.c.options),
    notice_endpoints: (notice_endpoints.c.secret, notice_endpoints.c.previous_secret),
}
"""The columns with secrets, by table; `id` is the associated data of a row."""


def count_secrets_by_key(connection: Connection) -> Mapping[str, int]:
    """The number of stored secrets by the id of their key; `TEXT` for those without. Scans all."""
    counts: Counter[str] = Counter()
    for column in chain.from_iterable(SECRET_COLUMNS.values()):
        of_key = func.substr(column, len(MARK) + 1, ID_CHARS)
        key = case((column.startswith(MARK), of_key), else_=TEXT).label("key")
        query = select(key, func.count()).where(column != "").group_by(key)
        for name, count in connection.execute(query):
            counts[name] += count
    return counts


def check_secret_keys(connection: Connection) -> None:
    """Return if all stored secrets can be decrypted with the keys of the store.

    Raises:
        SecretKeyMissing: some are encrypted with other keys.
    """
    known = keys_of(connection).ids
    unknown = {
        name: count
        for name, count in count_secrets_by_key(connection).items()
        if name not in (TEXT, *known)
    }
    if unknown:
        raise SecretKeyMissing(
            f"{sum(unknown.values())} secrets of webhooks are encrypted with the key "
            f"{', '.join(sorted(unknown))}; configured: {', '.join(known) or 'none'}. Add the key "
            "to REWIND_SECRET_KEY, or to the key file"
        )


def reencrypt_secrets(
    connection: Connection, table: Table, after: str, *, only_text: bool = False
) -> tuple[int, str | None]:
    """Encrypt secrets of the next rows of `table` after the id `after` with the first key.

    Returns how many rows were changed, and the id to continue after; None at the end. With
    `only_text`, it encrypts only what is stored as text. Locks the changed rows.

    Raises:
        SecretUnreadable: a secret is encrypted with a key that is not configured.
    """
    keys = keys_of(connection)
    current = MARK if only_text else f"{MARK}{keys.ids[0]}:"
    columns = SECRET_COLUMNS[table]
    is_meant = or_(*(_is_other(column, current) for column in columns))
    # Without a lock: a locking scan would lock every row of the table.
    found = select(table.c.id).where(table.c.id > after, is_meant).order_by(table.c.id)
    ids = connection.execute(found.limit(IDS_PER_QUERY)).scalars().all()
    if not ids:
        return 0, None
    rows = select(table.c.id, *columns).where(table.c.id.in_(ids)).order_by(table.c.id)
    for row in connection.execute(rows.with_for_update()).all():
        values: dict[str, Any] = {}
        for column in columns:
            stored = getattr(row, column.name)
            if stored and not stored.startswith(current):
                values[column.name] = keys.encrypt(row.id, keys.decrypt(row.id, stored))
        if values:
            connection.execute(update(table).where(table.c.id == row.id).values(values))
    return len(ids), ids[-1]


def _is_other(column: Column[Any], current: str) -> ColumnElement[bool]:
    return and_(column != "", ~column.startswith(current))
