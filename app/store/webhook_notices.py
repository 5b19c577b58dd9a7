"""The notices of an account about one webhook, which the functions of `webhooks` store.

An outage that is shorter than `OUTAGE_MS` is not reported: its notice is due after that time, and
deleted if the receiver recovers before.
"""

from sqlalchemy import Connection, select

from app.domain.account_notices import OUTAGE_MS, NoticeType, secret_notice_delay_ms
from app.domain.model import Webhook
from app.domain.windows import format_time
from app.store.account_notices import drop_future_notices, record_account_notice
from app.store.sql import now_ms


def report_failing(connection: Connection, account_id: str, webhook_id: str, since_ms: int) -> None:
    """Store a notice that the receiver fails since `since_ms`."""
    failed_ms = _present_ms(connection) - since_ms
    data = _outage(account_id, webhook_id, since_ms)
    delay_ms = min(max(OUTAGE_MS - failed_ms, 0), OUTAGE_MS)
    record_account_notice(
        connection, NoticeType.WEBHOOK_FAILING, account_id, webhook_id, data, delay_ms=delay_ms
    )


def report_recovered(
    connection: Connection, account_id: str, webhook_id: str, since_ms: int | None
) -> None:
    """Store a notice that the receiver, which failed since `since_ms`, accepts events again."""
    if since_ms is None:
        return
    if _present_ms(connection) - since_ms < OUTAGE_MS:
        drop_outage(connection, webhook_id)
        return
    data = _outage(account_id, webhook_id, since_ms)
    record_account_notice(connection, NoticeType.WEBHOOK_RECOVERED, account_id, webhook_id, data)


def report_disabled(connection: Connection, webhook: Webhook, reason: str) -> None:
    """Store a notice that the webhook is disabled because of `reason`.

    It has the start of an outage, which is not reported separately afterwards.
    """
    drop_outage(connection, webhook.id)
    data = {**_outage(webhook.account_id, webhook.id, webhook.failing_since_ms), "reason": reason}
    record_account_notice(
        connection, NoticeType.WEBHOOK_DISABLED, webhook.account_id, webhook.id, data
    )


def report_expiring_secret(
    connection: Connection, account_id: str, webhook_id: str, grace_ms: int
) -> None:
    """Store a notice that the previous secret stops signing in `grace_ms`; none for 0."""
    drop_future_notices(connection, webhook_id, [NoticeType.SECRET_EXPIRING])
    if not grace_ms:
        return
    data = {
        "accountId": account_id,
        "webhookId": webhook_id,
        "expiresAt": format_time(_present_ms(connection) + grace_ms),
    }
    record_account_notice(
        connection,
        NoticeType.SECRET_EXPIRING,
        account_id,
        webhook_id,
        data,
        delay_ms=secret_notice_delay_ms(grace_ms),
    )


def drop_outage(connection: Connection, webhook_id: str) -> None:
    """Delete the notice of an outage that is not due yet."""
    drop_future_notices(connection, webhook_id, [NoticeType.WEBHOOK_FAILING])


def drop_reports(connection: Connection, webhook_id: str) -> None:
    """Delete the notices that are not due yet, because the webhook is deleted."""
    drop_outage(connection, webhook_id)
    drop_future_notices(connection, webhook_id, [NoticeType.SECRET_EXPIRING])


def _outage(account_id: str, webhook_id: str, since_ms: int | None) -> dict[str, str | None]:
    since = None if since_ms is None else format_time(since_ms)
    return {"accountId": account_id, "webhookId": webhook_id, "failingSince": since}


def _present_ms(connection: Connection) -> int:
    present_ms: int = connection.execute(select(now_ms())).scalar_one()
    return present_ms
