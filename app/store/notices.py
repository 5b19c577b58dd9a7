"""Notifications of ended replays that are due to their webhooks: an outbox in the replays' rows.

The first claim also stores the notice for the endpoints of the account, see `account_notices`.

The statement that ends a replay makes its notice due. A claim increments the attempt number and
postpones the notice, so it is claimed again if no result is recorded. A result names its attempt
and the end of the replay, so a process that was suspended during an attempt changes nothing.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Select, and_, select, update

from app.domain.account_notices import replay_notice_data, replay_notice_type
from app.domain.model import Replay, ReplayNotice, WebhookStatus
from app.store.account_notices import record_account_notice
from app.store.errors import SecretUnreadable, WebhookNotFound
from app.store.replays import to_replay
from app.store.sql import ms_from_now, now_ms
from app.store.tables import NOTICE_INDEX, replays
from app.store.webhooks import get_webhook

_log: Final = logging.getLogger(__name__)

DROPPED_PER_CLAIM: Final = 100
"""Notices that one claim drops or postpones, each under a lock."""


def is_any_due(connection: Connection) -> bool:
    """Whether a claim would find a notice. Locks nothing."""
    return connection.execute(_select_due()).first() is not None


def claim_due_notice(connection: Connection, lease_s: float) -> ReplayNotice | None:
    """Claim the notice that has been due longest, for `lease_s`; None if none is due.

    Drops a notice if its webhook is deleted, or is not ENABLED and the replay has no target URL of
    its own. Postpones it, as an attempt without a result, if the webhook's secret is unreadable.
    Locks the rows that it reads until the commit; skips rows that others are claiming.
    """
    for _ in range(DROPPED_PER_CLAIM):
        row = connection.execute(_select_due().with_for_update(skip_locked=True)).first()
        if row is None:
            return None
        replay = to_replay(row)
        if row.notice_attempts == 0:
            _notify_account(connection, replay)
        attempt = row.notice_attempts + 1
        values = {"notice_due_ms": ms_from_now(lease_s), "notice_attempts": attempt}
        try:
            notice = _to_notice(connection, replay, attempt)
        except SecretUnreadable as error:
            fields = {"replay": replay.id, "webhook": replay.webhook_id, "reason": str(error)}
            _log.warning("notice-secret-unreadable", extra=fields)
            _update(connection, row.id, values)
            continue
        if notice is not None:
            _update(connection, row.id, values)
            return notice
        _update(connection, row.id, {"notice_due_ms": None})
    return None


def _select_due() -> Select[Any]:
    return (
        select(replays)
        # For the same reason as in `leases`.
        .with_hint(replays, f"FORCE INDEX ({NOTICE_INDEX})", "mysql")
        .where(replays.c.notice_due_ms <= now_ms())
        .order_by(replays.c.notice_due_ms)
        .limit(1)
    )


def _notify_account(connection: Connection, replay: Replay) -> None:
    notice_type, data = replay_notice_type(replay), replay_notice_data(replay)
    record_account_notice(connection, notice_type, replay.account_id, replay.webhook_id, data)


def _to_notice(connection: Connection, replay: Replay, attempt: int) -> ReplayNotice | None:
    """The notice of a replay's end; None if it has no receiver."""
    try:
        webhook = get_webhook(connection, replay.webhook_id)
    except WebhookNotFound:
        return None
    has_own_target = replay.options.target_url is not None
    if webhook.status is not WebhookStatus.ENABLED and not has_own_target:
        return None
    return ReplayNotice(replay, webhook, attempt)


def _update(connection: Connection, replay_id: str, values: Mapping[str, Any]) -> None:
    connection.execute(update(replays).where(replays.c.id == replay_id).values(**values))


def finish_notice_attempt(
    connection: Connection, notice: ReplayNotice, retry_in_s: float | None = None
) -> None:
    """End an attempt; the next is due in `retry_in_s`, or never if it succeeded or was the last.

    Does nothing if a later attempt has begun, or the replay has not ended or ended again. Locks the
    replay's row.
    """
    due_ms = None if retry_in_s is None else ms_from_now(retry_in_s)
    ended = notice.replay
    is_attempt = and_(
        replays.c.id == ended.id,
        replays.c.state == ended.state,
        replays.c.lease_epoch == ended.lease_epoch,
        replays.c.notice_attempts == notice.attempt,
    )
    connection.execute(update(replays).where(is_attempt).values(notice_due_ms=due_ms))
