"""The table of those who are signed in to the console: every statement on it."""

from typing import Final

from sqlalchemy import Connection, Select, delete, insert, select

from app.domain.accounts import ApiKey
from app.store.accounts import digest_of, keys, to_key
from app.store.clock import ms_from_now, now_ms
from app.store.tables import api_keys, console_sessions

PER_KEY_MAX: Final = 100
"""The oldest above it end, so that whoever signs in again and again fills no table."""

ENDED_AT_ONCE: Final = 100


def open(connection: Connection, key_id: str, token: str, duration_s: float) -> None:  # noqa: A001
    """Let `token` stand for a key for so long. Deletes what is over, of anybody, save too many."""
    over = select(console_sessions.c.digest).where(console_sessions.c.expires_ms <= now_ms())
    # Passing over what others delete: those who sign in at once would wait in a ring.
    _end(connection, over.limit(ENDED_AT_ONCE).with_for_update(skip_locked=True))
    connection.execute(
        insert(console_sessions).values(
            digest=digest_of(token),
            key_id=key_id,
            created_ms=now_ms(),
            expires_ms=ms_from_now(duration_s),
        )
    )
    _end_the_oldest(connection, key_id)


def _end_the_oldest(connection: Connection, key_id: str) -> None:
    query = (
        select(console_sessions.c.digest)
        .where(console_sessions.c.key_id == key_id)
        .order_by(console_sessions.c.created_ms.desc())
        .offset(PER_KEY_MAX)
        # MySQL has no OFFSET without a LIMIT.
        .limit(PER_KEY_MAX)
    )
    _end(connection, query)


def _end(connection: Connection, query: Select[tuple[str]]) -> None:
    digests = list(connection.scalars(query))
    if digests:
        connection.execute(delete(console_sessions).where(console_sessions.c.digest.in_(digests)))


def key_of(connection: Connection, token: str) -> ApiKey | None:
    """The key that `token` stands for; None when it does not, or the key was revoked."""
    query = (
        keys()
        .join(console_sessions, console_sessions.c.key_id == api_keys.c.id)
        .where(
            console_sessions.c.digest == digest_of(token),
            console_sessions.c.expires_ms > now_ms(),
            api_keys.c.revoked_ms.is_(None),
        )
    )
    row = connection.execute(query).first()
    return None if row is None else to_key(row)


def close(connection: Connection, token: str) -> None:
    """Let `token` stand for nothing any more."""
    connection.execute(
        delete(console_sessions).where(console_sessions.c.digest == digest_of(token))
    )
