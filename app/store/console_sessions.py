"""The table of console sessions."""

from typing import Final

from sqlalchemy import Connection, Select, delete, insert, select

from app.domain.accounts import ApiKey
from app.store.accounts import digest_of, select_keys, to_key
from app.store.sql import ms_from_now, now_ms
from app.store.tables import api_keys, console_sessions

PER_KEY_MAX: Final = 100
"""Beyond it the oldest sessions of a key end, so repeated sign-ins do not fill the table."""

DELETED_PER_CALL: Final = 100


def open_session(connection: Connection, key_id: str, token: str, duration_s: float) -> None:
    """Open a session of the key for `duration_s`, under a secret `token`.

    Also deletes at most `DELETED_PER_CALL` expired sessions of all keys, and locks them.
    """
    expired = select(console_sessions.c.digest).where(console_sessions.c.expires_ms <= now_ms())
    # Skips rows that others delete: concurrent sign-ins would deadlock.
    _delete(connection, expired.limit(DELETED_PER_CALL).with_for_update(skip_locked=True))
    connection.execute(
        insert(console_sessions).values(
            digest=digest_of(token),
            key_id=key_id,
            created_ms=now_ms(),
            expires_ms=ms_from_now(duration_s),
        )
    )
    beyond_max = (
        select(console_sessions.c.digest)
        .where(console_sessions.c.key_id == key_id)
        .order_by(console_sessions.c.created_ms.desc())
        .offset(PER_KEY_MAX)
        # MySQL has no OFFSET without a LIMIT.
        .limit(PER_KEY_MAX)
    )
    _delete(connection, beyond_max)


def _delete(connection: Connection, query: Select[tuple[str]]) -> None:
    digests = list(connection.scalars(query))
    if digests:
        connection.execute(delete(console_sessions).where(console_sessions.c.digest.in_(digests)))


def find_session_key(connection: Connection, token: str) -> ApiKey | None:
    """The key of the session; None if the session is unknown or expired, or the key is revoked."""
    query = (
        select_keys()
        .join(console_sessions, console_sessions.c.key_id == api_keys.c.id)
        .where(
            console_sessions.c.digest == digest_of(token),
            console_sessions.c.expires_ms > now_ms(),
            api_keys.c.revoked_ms.is_(None),
        )
    )
    row = connection.execute(query).first()
    return None if row is None else to_key(row)


def close_session(connection: Connection, token: str) -> None:
    """Delete the session; does nothing if the token is unknown."""
    connection.execute(
        delete(console_sessions).where(console_sessions.c.digest == digest_of(token))
    )
