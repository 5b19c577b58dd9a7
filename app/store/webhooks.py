"""The table of webhooks: every statement on it but the look-up of what changed, see `routing`.

Who changes one has counted the revision up before, and so is the only one to do so; only
`note_failing` is no change of the routing table, and `lock` is for who writes elsewhere.
"""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, func, insert, select, true, update

from app.domain.model import NewWebhook, Validation, Webhook, WebhookStatus
from app.store.clock import now_ms
from app.store.errors import TooManyWebhooks, WebhookNotFound
from app.store.identity import exactly, new_webhook_id
from app.store.pages import Page, newest_first
from app.store.tables import webhooks

IDS_PER_QUERY: Final = 500
"""Older versions of SQLite take no more than 999 parameters."""

REASON_CHARS_MAX: Final = 4_000
"""Longer reasons are cut: a column of MySQL holds 65,535 bytes."""

_ALIVE = webhooks.c.deleted_ms.is_(None)


def _is_of(of_account: str | None) -> ColumnElement[bool]:
    return true() if of_account is None else webhooks.c.account_id == of_account


def _is_there(webhook_id: str, of_account: str | None = None) -> ColumnElement[bool]:
    return and_(exactly(webhooks.c.id, webhook_id), _ALIVE, _is_of(of_account))


def create(
    connection: Connection, new: NewWebhook, revision: int, at_most: int | None = None
) -> Webhook:
    """Store `new` under an id of its own, PENDING.

    Raises:
        TooManyWebhooks: its account has `at_most` already; None is no bound.
    """
    if at_most is not None:
        _check_room(connection, new.account_id, at_most)
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
            revision=revision,
        )
    )
    return get(connection, webhook_id)


def _check_room(connection: Connection, account_id: str, at_most: int) -> None:
    query = select(func.count()).where(webhooks.c.account_id == account_id, _ALIVE)
    if connection.execute(query).scalar_one() >= at_most:
        raise TooManyWebhooks(account_id, at_most)


def get(connection: Connection, webhook_id: str, of_account: str | None = None) -> Webhook:
    """The webhook of this id, if it belongs to the account; None is any account.

    Raises:
        WebhookNotFound: it never was, it was deleted, or it is another account's.
    """
    query = select(webhooks).where(_is_there(webhook_id, of_account))
    row = connection.execute(query).first()
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


def lock(connection: Connection, webhook_id: str, of_account: str | None) -> Webhook | None:
    """The webhook, which is not deleted before the transaction ends; None when it is not there."""
    query = select(webhooks).where(_is_there(webhook_id, of_account)).with_for_update()
    row = connection.execute(query).first()
    return None if row is None else to_webhook(row)


def change(
    connection: Connection,
    webhook_id: str,
    url: str | None,
    description: str | None,
    revision: int,
    of_account: str | None,
) -> Webhook:
    """The webhook with what is not None changed; at another URL it is PENDING. Locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    webhook = get(connection, webhook_id, of_account)
    values: dict[str, Any] = {}
    if description is not None:
        values["description"] = description
    if url not in (None, webhook.url):
        values |= {
            "url": url,
            "status": str(WebhookStatus.PENDING),
            "status_reason": None,
            "validated_ms": None,
            "failing_since_ms": None,
        }
    return _marked(connection, webhook_id, values, revision) if values else webhook


def _marked(
    connection: Connection, webhook_id: str, values: dict[str, Any], revision: int
) -> Webhook:
    statement = update(webhooks).where(webhooks.c.id == webhook_id)
    connection.execute(statement.values(values | {"revision": revision}))
    return get(connection, webhook_id)


def enable(connection: Connection, webhook_id: str, url: str, revision: int) -> Webhook:
    """The webhook, ENABLED if it is still at `url`. Locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    webhook = get(connection, webhook_id)
    if webhook.url != url:
        return webhook
    values = {
        "status": str(WebhookStatus.ENABLED),
        "status_reason": None,
        "validated_ms": now_ms(),
        "failing_since_ms": None,
    }
    return _marked(connection, webhook_id, values, revision)


def refuse(
    connection: Connection, webhook_id: str, url: str, reason: str, revision: int
) -> Webhook:
    """The webhook with why it is not ENABLED, unless it is, or is at another URL. Locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    webhook = get(connection, webhook_id)
    if webhook.url != url or webhook.status is WebhookStatus.ENABLED:
        return webhook
    values = {"status_reason": reason[:REASON_CHARS_MAX]}
    return _marked(connection, webhook_id, values, revision)


def disable(
    connection: Connection,
    webhook_id: str,
    reason: str,
    at_url: str | None,
    revision: int,
    of_account: str | None,
) -> Webhook:
    """The webhook, DISABLED because of `reason`, unless it is elsewhere by now. Locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    webhook = get(connection, webhook_id, of_account)
    if at_url not in (None, webhook.url):
        return webhook
    values = {"status": str(WebhookStatus.DISABLED), "status_reason": reason[:REASON_CHARS_MAX]}
    return _marked(connection, webhook_id, values, revision)


def rotate_secret(
    connection: Connection,
    webhook_id: str,
    secret: str,
    grace_ms: int,
    revision: int,
    of_account: str | None,
) -> Webhook:
    """The webhook with a new secret; the one before it signs on for `grace_ms`. Locks its row.

    The secret that it has already changes nothing: asked twice, the one before would be lost.

    Raises:
        WebhookNotFound: see `get`.
    """
    webhook = get(connection, webhook_id, of_account)
    if webhook.secret == secret:
        return webhook
    values = {
        "secret": secret,
        "previous_secret": webhook.secret if grace_ms else None,
        "previous_secret_until_ms": now_ms() + grace_ms if grace_ms else None,
    }
    return _marked(connection, webhook_id, values, revision)


def note_failing(connection: Connection, webhook_id: str, since_ms: int | None) -> None:
    """Store since when the receiver takes nothing; None: it takes. Locks the webhook's row."""
    statement = update(webhooks).where(_is_there(webhook_id))
    connection.execute(statement.values(failing_since_ms=since_ms))


def delete(connection: Connection, webhook_id: str, revision: int, of_account: str | None) -> None:
    """Forget the secrets of a webhook and hide it from now on; locks its row.

    Raises:
        WebhookNotFound: see `get`.
    """
    statement = update(webhooks).where(_is_there(webhook_id, of_account))
    result = connection.execute(
        statement.values(
            deleted_ms=now_ms(),
            secret="",
            previous_secret=None,
            previous_secret_until_ms=None,
            revision=revision,
        )
    )
    if result.rowcount == 0:
        raise WebhookNotFound(webhook_id)


def newest(
    connection: Connection,
    status: WebhookStatus | None,
    cursor: str | None,
    limit: int,
    of_account: str | None,
) -> Page[Webhook]:
    """A page of the webhooks that are there, of one account or all, the latest first.

    With a status, those alone that have it.
    """
    query = select(webhooks).where(_ALIVE, _is_of(of_account))
    if status is not None:
        query = query.where(webhooks.c.status == str(status))
    order = (webhooks.c.created_ms, webhooks.c.id)
    return newest_first(connection, query, order, cursor, limit, to_webhook)


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
