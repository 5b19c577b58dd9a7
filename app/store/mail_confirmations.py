"""Confirmation mails: the codes that they have, and how many an account may cause."""

from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from app.domain.account_notices import NoticeEndpoint
from app.domain.hours import HOUR_MS
from app.domain.mail_confirmations import (
    PER_ACCOUNT_AND_HOUR_MAX,
    PER_ADDRESS_AND_DAY_MAX,
    VALID_MS,
)
from app.store.errors import TooManyConfirmationMails
from app.store.notice_endpoints import enable_notice_endpoint, lock_notice_endpoint
from app.store.notice_tables import mail_confirmations
from app.store.sql import new_id, now_ms
from app.store.tables import accounts

ROWS_PER_CALL: Final = 1_000

_row = mail_confirmations.c


def record_confirmation_mail(
    connection: Connection, endpoint: NoticeEndpoint, address: str, digest: str
) -> str:
    """Store that a mail with the code of `digest` is sent to `address`; returns the mail's id.

    Locks the account's row until the commit.

    Raises:
        TooManyConfirmationMails: the account, or the account with this address, has sent as many.
    """
    # Concurrent requests would each count the mails before the others insert theirs.
    account = select(accounts.c.id).where(accounts.c.id == endpoint.account_id)
    connection.execute(account.with_for_update())
    _check_limit(connection, endpoint, PER_ACCOUNT_AND_HOUR_MAX, HOUR_MS)
    _check_limit(connection, endpoint, PER_ADDRESS_AND_DAY_MAX, VALID_MS, address.lower())
    mail_id = new_id("ntm_")
    connection.execute(
        insert(mail_confirmations).values(
            id=mail_id,
            account_id=endpoint.account_id,
            endpoint_id=endpoint.id,
            address=address.lower(),
            code_digest=digest,
            sent_ms=now_ms(),
        )
    )
    return mail_id


def _check_limit(
    connection: Connection,
    endpoint: NoticeEndpoint,
    mails_max: int,
    span_ms: int,
    address: str | None = None,
) -> None:
    """Return if fewer than `mails_max` were sent in the last `span_ms`, to `address` if given."""
    query = select(func.count(), func.min(_row.sent_ms) + span_ms - now_ms()).where(
        _row.account_id == endpoint.account_id, _row.sent_ms > now_ms() - span_ms
    )
    if address is not None:
        query = query.where(_row.address == address)
    count, wait_ms = connection.execute(query).one()
    if count >= mails_max:
        raise TooManyConfirmationMails(endpoint.account_id, count, span_ms, wait_ms)


def confirm_mail_endpoint(
    connection: Connection, endpoint_id: str, digest: str, *, of_account: str | None = None
) -> NoticeEndpoint | None:
    """Enable the endpoint if a valid code for its address has this digest; None if none has.

    Locks the endpoint's row until the commit.
    """
    endpoint = lock_notice_endpoint(connection, endpoint_id, of_account=of_account)
    query = select(_row.id).where(
        _row.endpoint_id == endpoint.id,
        _row.address == (endpoint.mail_address or "").lower(),
        _row.code_digest == digest,
        _row.sent_ms > now_ms() - VALID_MS,
    )
    if connection.execute(query).first() is None:
        return None
    return enable_notice_endpoint(connection, endpoint_id)


def delete_old_confirmations(connection: Connection) -> int:
    """Delete confirmations whose codes have expired; returns how many.

    At most `ROWS_PER_CALL`. Locks the deleted rows.
    """
    # Without a lock: the deletion locks by primary key only.
    found = select(_row.id).where(_row.sent_ms < now_ms() - VALID_MS).limit(ROWS_PER_CALL)
    ids = sorted(connection.execute(found).scalars())
    if not ids:
        return 0
    return connection.execute(delete(mail_confirmations).where(_row.id.in_(ids))).rowcount
