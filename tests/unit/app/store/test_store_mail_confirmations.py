"""Codes of confirmation mails, their limits, and which notices are mails."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.hours import HOUR_MS
from app.domain.mail_confirmations import (
    PER_ACCOUNT_AND_HOUR_MAX,
    PER_ADDRESS_AND_DAY_MAX,
    VALID_MS,
    code_digest,
)
from app.domain.model import Webhook, WebhookStatus
from app.store import Store
from app.store.errors import NoticeEndpointNotFound, TooManyConfirmationMails
from app.store.notice_tables import mail_confirmations
from app.webhooks.signing import new_secret

ADDRESS = "Ops@example.com"
CODE = code_digest("AAAA-BBBB-CCCC")


@pytest.fixture
def endpoint(store: Store) -> NoticeEndpoint:
    """A PENDING endpoint that is an address."""
    new = NewNoticeEndpoint(DEFAULT_ACCOUNT, f"mailto:{ADDRESS}", "", new_secret())
    return store.create_notice_endpoint(new)


def make_older(store: Store, age_ms: int) -> None:
    sent_ms = mail_confirmations.c.sent_ms - age_ms
    statement = update(mail_confirmations).values(sent_ms=sent_ms)
    store.database.write(lambda connection: connection.execute(statement))


def test_a_valid_code_enables_the_endpoint(store: Store, endpoint: NoticeEndpoint) -> None:
    assert store.record_confirmation_mail(endpoint, ADDRESS, CODE).startswith("ntm_")
    assert store.confirm_mail_endpoint(endpoint.id, code_digest("another")) is None
    with pytest.raises(NoticeEndpointNotFound):
        store.confirm_mail_endpoint(endpoint.id, CODE, of_account="acc_other")
    make_older(store, VALID_MS)
    assert store.confirm_mail_endpoint(endpoint.id, CODE) is None
    make_older(store, 60_000 - VALID_MS)
    confirmed = store.confirm_mail_endpoint(endpoint.id, CODE)
    assert confirmed is not None
    assert confirmed.status is WebhookStatus.ENABLED


def test_a_code_is_of_one_endpoint_and_address(store: Store, endpoint: NoticeEndpoint) -> None:
    store.record_confirmation_mail(endpoint, "other@example.com", CODE)
    assert store.confirm_mail_endpoint(endpoint.id, CODE) is None
    store.record_confirmation_mail(endpoint, ADDRESS, CODE)
    new = NewNoticeEndpoint(DEFAULT_ACCOUNT, endpoint.url, "", new_secret())
    assert store.confirm_mail_endpoint(store.create_notice_endpoint(new).id, CODE) is None
    assert store.confirm_mail_endpoint(endpoint.id, CODE) is not None


def test_concurrent_requests_stay_within_the_limits(store: Store, endpoint: NoticeEndpoint) -> None:
    def record(address: str) -> int | None:
        """The seconds to wait; None if the mail may be sent."""
        try:
            store.record_confirmation_mail(endpoint, address, CODE)
        except TooManyConfirmationMails as refused:
            return refused.retry_after_s
        return None

    addresses = [ADDRESS] * (PER_ADDRESS_AND_DAY_MAX + 2)
    with ThreadPoolExecutor(4) as pool:
        waits = list(pool.map(record, addresses))
    assert waits.count(None) == PER_ADDRESS_AND_DAY_MAX
    assert all(wait is None or HOUR_MS < 1_000 * wait <= VALID_MS for wait in waits)
    others = [f"other{n}@example.com" for n in range(PER_ACCOUNT_AND_HOUR_MAX)]
    waits = list(map(record, others))
    assert waits.count(None) == PER_ACCOUNT_AND_HOUR_MAX - PER_ADDRESS_AND_DAY_MAX
    assert all(wait is None or 0 < 1_000 * wait <= HOUR_MS for wait in waits)
    make_older(store, HOUR_MS)
    assert record(others[-1]) is None
    assert store.delete_old_confirmations() == 0
    make_older(store, VALID_MS + 1)  # the newest may be of this millisecond
    assert store.delete_old_confirmations() == PER_ACCOUNT_AND_HOUR_MAX + 1


def test_mails_are_claimed_by_those_that_can_send_them(
    store: Store, webhook: Webhook, endpoint: NoticeEndpoint
) -> None:
    store.enable_notice_endpoint(endpoint.id)
    store.disable_webhook(webhook.id, "by hand")
    assert store.claim_account_notice(60, [], with_mails=False) is None
    notice = store.claim_account_notice(60, [])
    assert notice is not None
    assert (notice.endpoint.mail_address, notice.webhook_name) == (ADDRESS, webhook.description)
