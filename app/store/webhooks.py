"""The table of webhooks: every statement on it."""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from app.replay.model import NewWebhook, Validation, Webhook, WebhookStatus
from app.store.clock import now_ms
from app.store.errors import WebhookNotFound
from app.store.identity import exactly, new_webhook_id
from app.store.pages import Page, newest_first
from app.store.tables import webhooks

IDS_PER_QUERY: Final = 500
"""Older versions of SQLite take no more than 999 parameters."""

_ALIVE = webhooks.c.deleted_ms.is_(None)


def _is_alive(webhook_id: str) -> ColumnElement[bool]:
    return exactly(webhooks.c.id, webhook_id) & _ALIVE


def create(connection: Connection, new: NewWebhook) -> Webhook:
    """Store `new` under an id of its own; locks nothing that others want."""
    webhook_id = new_webhook_id()
    connection.execute(
        insert(webhooks).values(
            id=webhook_id,
            account_id=new.account_id,
            url=new.url,
            description=new.description,
            secret=new.secret,
            validation=str(new.validation),
            status=str(WebhookStatus.PENDING),
            created_ms=now_ms(),
        )
    )
    return get(connection, webhook_id)


def get(connection: Connection, webhook_id: str) -> Webhook:
    """The webhook of this id.

    Raises:
        WebhookNotFound: it never was, or it was deleted.
    """
    row = connection.execute(select(webhooks).where(_is_alive(webhook_id))).first()
    if row is None:
        raise WebhookNotFound(webhook_id)
    return to_webhook(row)


def unknown(connection: Connection, webhook_ids: Collection[str]) -> set[str]:
    """Those of the ids that no webhook has, or only a deleted one."""
    missing = set(webhook_ids)
    asked = list(missing)
    for start in range(0, len(asked), IDS_PER_QUERY):
        chunk = asked[start : start + IDS_PER_QUERY]
        query = select(webhooks.c.id).where(webhooks.c.id.in_(chunk), _ALIVE)
        missing.difference_update(connection.execute(query).scalars())
    return missing


def lock(connection: Connection, webhook_id: str) -> bool:
    """Whether the webhook is there; if so, it is not deleted before the transaction ends."""
    query = select(webhooks.c.id).where(_is_alive(webhook_id)).with_for_update()
    return connection.execute(query).first() is not None


def change(
    connection: Connection, webhook_id: str, url: str | None, description: str | None
) -> Webhook:
    """The webhook with what is not None changed; locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    given = {"url": url, "description": description}
    changes = {name: value for name, value in given.items() if value is not None}
    if changes:
        statement = update(webhooks).where(_is_alive(webhook_id))
        connection.execute(statement.values(changes))
    return get(connection, webhook_id)


def delete(connection: Connection, webhook_id: str) -> None:
    """Forget the secret of a webhook and hide it from now on; locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    statement = update(webhooks).where(_is_alive(webhook_id))
    result = connection.execute(statement.values(deleted_ms=now_ms(), secret=""))
    if result.rowcount == 0:
        raise WebhookNotFound(webhook_id)


def newest(connection: Connection, cursor: str | None, limit: int) -> Page[Webhook]:
    """A page of the webhooks that are there, the latest first."""
    order = (webhooks.c.created_ms, webhooks.c.id)
    return newest_first(
        connection, select(webhooks).where(_ALIVE), order, cursor, limit, to_webhook
    )


def to_webhook(row: Row[Any]) -> Webhook:
    """The value of a row of the table."""
    return Webhook(
        id=row.id,
        account_id=row.account_id,
        url=row.url,
        description=row.description,
        validation=Validation(row.validation),
        status=WebhookStatus(row.status),
        status_reason=row.status_reason,
        secret=row.secret,
        previous_secret=row.previous_secret,
        previous_secret_until_ms=row.previous_secret_until_ms,
        validated_ms=row.validated_ms,
        failing_since_ms=row.failing_since_ms,
        created_ms=row.created_ms,
    )
