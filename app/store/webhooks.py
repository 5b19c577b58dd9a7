"""The table of webhooks.

`of_account` limits a function to the webhooks of one account; None means all accounts. Functions
that take a webhook's id raise `WebhookNotFound` if it does not exist, is deleted, or belongs to
another account. Functions that change a webhook lock the routing revision (see `revisions`) and the
webhook's row until the commit; only `record_failing_since` does not change the routing table.
`routing` creates and deletes webhooks.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    func,
    insert,
    select,
    true,
    update,
)

from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions
from app.domain.model import NewWebhook, Validation, Webhook, WebhookStatus
from app.store.endpoint_options import decode_options, encode_options
from app.store.errors import TooManyWebhooks, WebhookNotFound
from app.store.pages import PAGE_LIMIT, Page, newest_first
from app.store.recoveries import finish_recovery
from app.store.revisions import count_up
from app.store.secret_keys import SecretKeys, keys_of, rotated_secret
from app.store.sql import IDS_PER_QUERY, TEXT_CHARS_MAX, exactly, new_id, now_ms
from app.store.tables import webhooks
from app.store.webhook_notices import (
    drop_outage,
    drop_reports,
    report_disabled,
    report_expiring_secret,
    report_failing,
    report_recovered,
)

_EXISTS: Final = webhooks.c.deleted_ms.is_(None)


def _belongs_to(of_account: str | None) -> ColumnElement[bool]:
    return true() if of_account is None else webhooks.c.account_id == of_account


def _is_webhook(webhook_id: str, of_account: str | None = None) -> ColumnElement[bool]:
    return and_(exactly(webhooks.c.id, webhook_id), _EXISTS, _belongs_to(of_account))


def insert_webhook(
    connection: Connection, new: NewWebhook, revision: int, at_most: int | None
) -> Webhook:
    """Insert a PENDING webhook with a new id.

    Raises:
        TooManyWebhooks: its account has `at_most` webhooks; None is no limit.
    """
    if at_most is not None:
        _check_count(connection, new.account_id, at_most)
    webhook_id = new_id("wh_")
    connection.execute(
        insert(webhooks).values(
            id=webhook_id,
            account_id=new.account_id,
            url=new.url,
            description=new.description,
            secret=keys_of(connection).encrypt(webhook_id, new.secret),
            validation=str(new.validation),
            auto_recovery=int(new.auto_recovery),
            options=_encrypted_options(connection, webhook_id, new.options),
            status=str(WebhookStatus.PENDING),
            created_ms=now_ms(),
            revision=revision,
        )
    )
    return get_webhook(connection, webhook_id)


def _encrypted_options(
    connection: Connection, webhook_id: str, options: EndpointOptions
) -> str | None:
    text = encode_options(options)
    return None if text is None else keys_of(connection).encrypt(webhook_id, text)


def _check_count(connection: Connection, account_id: str, at_most: int) -> None:
    query = select(func.count()).where(webhooks.c.account_id == account_id, _EXISTS)
    if connection.execute(query).scalar_one() >= at_most:
        raise TooManyWebhooks(account_id, at_most)


def get_webhook(
    connection: Connection, webhook_id: str, *, of_account: str | None = None
) -> Webhook:
    """The webhook with this id."""
    row = connection.execute(select(webhooks).where(_is_webhook(webhook_id, of_account))).first()
    if row is None:
        raise WebhookNotFound(webhook_id)
    return to_webhook(row, keys_of(connection))


def lock_webhook(connection: Connection, webhook_id: str, of_account: str | None) -> Webhook | None:
    """The webhook, locked against deletion until the commit; None if it does not exist."""
    query = select(webhooks).where(_is_webhook(webhook_id, of_account)).with_for_update()
    row = connection.execute(query).first()
    return None if row is None else to_webhook(row, keys_of(connection))


# Built once: each request that publishes to a webhook runs it.
_OWNERS: Final = select(webhooks.c.id, webhooks.c.account_id).where(
    webhooks.c.id.in_(bindparam("ids", expanding=True)), _EXISTS
)


def find_webhook_accounts(connection: Connection, webhook_ids: Collection[str]) -> dict[str, str]:
    """The ids of the accounts of the existing webhooks among these, by the webhooks' ids."""
    found: dict[str, str] = {}
    ids = list(webhook_ids)
    for start in range(0, len(ids), IDS_PER_QUERY):
        chunk = ids[start : start + IDS_PER_QUERY]
        rows = connection.execute(_OWNERS, {"ids": chunk})
        found |= {row.id: row.account_id for row in rows}
    # MySQL also finds "wh_1" for "wh_1 ".
    return {webhook_id: found[webhook_id] for webhook_id in ids if webhook_id in found}


# Built once: each list of replays runs it.
_NAMES: Final = select(webhooks.c.id, webhooks.c.description, webhooks.c.url).where(
    webhooks.c.id.in_(bindparam("ids", expanding=True)), _EXISTS
)


def find_webhook_names(connection: Connection, webhook_ids: Collection[str]) -> dict[str, str]:
    """The names of the existing webhooks among at most `IDS_PER_QUERY`, by id.

    A name is the description, or the URL of a webhook without one. Reads no secrets.
    """
    if not webhook_ids:
        return {}
    rows = connection.execute(_NAMES, {"ids": list(webhook_ids)})
    return {row.id: row.description or row.url for row in rows}


def update_webhook(
    connection: Connection,
    webhook_id: str,
    *,
    url: str | None = None,
    description: str | None = None,
    auto_recovery: bool | None = None,
    change_options: Callable[[EndpointOptions], EndpointOptions] | None = None,
    of_account: str | None = None,
) -> Webhook:
    """Change what is not None, and return the webhook; a new URL makes it PENDING.

    `change_options` gets the present options, and returns those to store; it may raise.
    """
    revision = count_up(connection)
    webhook = get_webhook(connection, webhook_id, of_account=of_account)
    values: dict[str, Any] = {}
    if description is not None:
        values["description"] = description
    if auto_recovery is not None:
        values["auto_recovery"] = int(auto_recovery)
    if change_options is not None:
        options = change_options(webhook.options or NO_OPTIONS)
        values["options"] = _encrypted_options(connection, webhook_id, options)
    if url not in (None, webhook.url):
        values |= {
            "url": url,
            "status": str(WebhookStatus.PENDING),
            "status_reason": None,
            "validated_ms": None,
            "failing_since_ms": None,
        }
        drop_outage(connection, webhook_id)
    return _update(connection, webhook_id, values, revision) if values else webhook


def _update(
    connection: Connection, webhook_id: str, values: dict[str, Any], revision: int
) -> Webhook:
    statement = update(webhooks).where(webhooks.c.id == webhook_id)
    connection.execute(statement.values(values | {"revision": revision}))
    return get_webhook(connection, webhook_id)


def enable_webhook(connection: Connection, webhook_id: str, url: str) -> Webhook:
    """Enable the webhook after its owner verified `url`; no change if it has another URL now.

    What it missed while its receiver failed is then due to a replay.
    """
    revision = count_up(connection)
    webhook = get_webhook(connection, webhook_id)
    if webhook.url != url:
        return webhook
    values = {
        "status": str(WebhookStatus.ENABLED),
        "status_reason": None,
        "validated_ms": now_ms(),
        "failing_since_ms": None,
    }
    finish_recovery(connection, webhook_id)
    report_recovered(connection, webhook.account_id, webhook_id, webhook.failing_since_ms)
    return _update(connection, webhook_id, values, revision)


def record_failed_verification(
    connection: Connection, webhook_id: str, url: str, reason: str
) -> Webhook:
    """Store why the verification of `url` failed.

    No change if the webhook is ENABLED, or has another URL now.
    """
    revision = count_up(connection)
    webhook = get_webhook(connection, webhook_id)
    if webhook.url != url or webhook.status is WebhookStatus.ENABLED:
        return webhook
    return _update(connection, webhook_id, {"status_reason": reason[:TEXT_CHARS_MAX]}, revision)


def disable_webhook(
    connection: Connection,
    webhook_id: str,
    reason: str,
    *,
    at_url: str | None = None,
    of_account: str | None = None,
) -> Webhook:
    """Disable the webhook because of `reason`, and notify its account.

    No change if the receiver that caused it was at `at_url`, and the webhook has another URL now.
    """
    revision = count_up(connection)
    webhook = get_webhook(connection, webhook_id, of_account=of_account)
    if at_url not in (None, webhook.url):
        return webhook
    if webhook.status is not WebhookStatus.DISABLED:
        report_disabled(connection, webhook, reason)
    values = {"status": str(WebhookStatus.DISABLED), "status_reason": reason[:TEXT_CHARS_MAX]}
    return _update(connection, webhook_id, values, revision)


def rotate_secret(
    connection: Connection,
    webhook_id: str,
    secret: str,
    grace_ms: int,
    *,
    of_account: str | None = None,
) -> Webhook:
    """Replace the webhook's secret; the previous one also signs for `grace_ms`.

    The current secret changes nothing: a repeated request would lose the previous secret.
    """
    revision = count_up(connection)
    webhook = get_webhook(connection, webhook_id, of_account=of_account)
    if webhook.secret == secret:
        return webhook
    values = rotated_secret(connection, webhook_id, webhook.secret, secret, grace_ms)
    report_expiring_secret(connection, webhook.account_id, webhook_id, grace_ms)
    return _update(connection, webhook_id, values, revision)


def record_failing_since(connection: Connection, webhook_id: str, since_ms: int | None) -> None:
    """Store since when deliveries fail; None if they succeed again. Locks the webhook's row.

    Of several processes that report an outage, the earliest start is kept. Notifies the account of
    a change. Does nothing if the webhook does not exist.
    """
    is_webhook = _is_webhook(webhook_id)
    # Without its secrets, which may be unreadable.
    query = select(webhooks.c.account_id, webhooks.c.failing_since_ms).where(is_webhook)
    found = connection.execute(query.with_for_update()).first()
    if found is None:
        return
    if since_ms is not None and found.failing_since_ms is not None:
        since_ms = min(since_ms, found.failing_since_ms)
    connection.execute(update(webhooks).where(is_webhook).values(failing_since_ms=since_ms))
    if since_ms is None:
        report_recovered(connection, found.account_id, webhook_id, found.failing_since_ms)
    elif found.failing_since_ms is None:
        report_failing(connection, found.account_id, webhook_id, since_ms)


def mark_deleted(
    connection: Connection, webhook_id: str, revision: int, of_account: str | None
) -> None:
    """Hide the webhook and erase its secrets; its row remains for the replays that refer to it."""
    statement = update(webhooks).where(_is_webhook(webhook_id, of_account))
    result = connection.execute(
        statement.values(
            deleted_ms=now_ms(),
            secret="",
            previous_secret=None,
            previous_secret_until_ms=None,
            options=None,
            revision=revision,
        )
    )
    if result.rowcount == 0:
        raise WebhookNotFound(webhook_id)
    drop_reports(connection, webhook_id)


def list_webhooks(
    connection: Connection,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
    *,
    status: WebhookStatus | None = None,
    of_account: str | None = None,
) -> Page[Webhook]:
    """A page of the webhooks, with one status or any, newest first.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    query = select(webhooks).where(_EXISTS, _belongs_to(of_account))
    if status is not None:
        query = query.where(webhooks.c.status == str(status))
    order = (webhooks.c.created_ms, webhooks.c.id)
    to_item = partial(to_webhook, keys=keys_of(connection))
    return newest_first(connection, query, order, cursor, limit, to_item)


def to_webhook(row: Row[Any], keys: SecretKeys) -> Webhook:
    """The webhook of a row of the table, with its secrets decrypted.

    Raises:
        SecretUnreadable: see `SecretKeys.decrypt`.
    """
    previous, options = row.previous_secret, row.options
    return Webhook(
        id=row.id,
        account_id=row.account_id,
        url=row.url,
        description=row.description,
        validation=Validation(row.validation),
        status=WebhookStatus(row.status),
        status_reason=row.status_reason,
        secret=keys.decrypt(row.id, row.secret),
        previous_secret=None if previous is None else keys.decrypt(row.id, previous),
        previous_secret_until_ms=row.previous_secret_until_ms,
        validated_ms=row.validated_ms,
        failing_since_ms=row.failing_since_ms,
        created_ms=row.created_ms,
        auto_recovery=bool(row.auto_recovery),
        options=None if options is None else decode_options(keys.decrypt(row.id, options)),
    )
