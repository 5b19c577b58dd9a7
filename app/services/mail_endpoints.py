"""Use cases of notice endpoints that are e-mail addresses: confirm the address, send a test."""

import time
from functools import partial
from secrets import choice, token_hex
from typing import Final

from anyio import to_thread

from app.domain.account_notices import NoticeEndpoint
from app.domain.accounts import ApiKey
from app.domain.mail import ADDRESS_FORM, is_mail_address, mail_address
from app.domain.mail_confirmations import code_digest
from app.domain.notice_mails import confirmation_mail, test_mail
from app.mail.mailer import Mailer
from app.services.errors import FieldError, InvalidRequest, RateLimited, ReceiverNotVerified
from app.services.services import Services, now_ms
from app.store.errors import TooManyConfirmationMails
from app.webhooks.endpoint_test import TEST_ID_PREFIX, EndpointTest
from app.webhooks.guard import UrlRefused

_NO_SERVER: Final = "no mail server is configured; the operator sets REWIND_SMTP_URL"

_CODE_ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""32 characters that are not mistaken for each other."""

_CODE_CHARS: Final = 12
_GROUP_CHARS: Final = 4


def check_endpoint_url(services: Services, url: str) -> None:
    """Return if notices may be sent to a URL or an address.

    Raises:
        UrlRefused: they may not.
    """
    address = mail_address(url)
    if address is None:
        services.guard.check_url(url)
    elif services.mailer is None:
        raise UrlRefused("url", url, f"https; {_NO_SERVER}")
    elif not is_mail_address(address):
        raise UrlRefused("url", url, ADDRESS_FORM)


def check_same_kind(endpoint: NoticeEndpoint, url: str) -> None:
    """Return if the endpoint may have `url`: addresses stay addresses, and URLs stay URLs.

    Raises:
        InvalidRequest: it is of the other kind.
    """
    if (mail_address(url) is None) != (endpoint.mail_address is None):
        kind = "an https URL" if endpoint.mail_address is None else "a mailto: URL"
        allowed = f"{kind}; register another endpoint"
        raise InvalidRequest(fields=[FieldError("url", url, allowed)])


async def send_confirmation(services: Services, endpoint: NoticeEndpoint) -> NoticeEndpoint:
    """Send a code to the endpoint's address, and store as its status reason that it was sent.

    Raises:
        ReceiverNotVerified: the mail server did not accept the mail.
        RateLimited: the account, or the account with this address, has sent too many.
    """
    mailer, address = _mailer(services), endpoint.mail_address
    assert address is not None
    code = _new_code()
    record = partial(services.store.record_confirmation_mail, endpoint, address, code_digest(code))
    try:
        mail_id = await to_thread.run_sync(record)
    except TooManyConfirmationMails as error:
        raise RateLimited(str(error), retry_after_s=error.retry_after_s) from None
    page = _console_page(services, endpoint)
    mail = confirmation_mail(
        mail_id, address, endpoint.account_id, endpoint.id, code, page, now_ms()
    )
    # Before the mail: its code may be used before the server's last reply is read.
    reason = "confirm the address with the code in the mail"
    endpoint = await _store_reason(services, endpoint, reason)
    result = await mailer.send(mail)
    if not result.is_accepted:
        reason = f"the confirmation mail was not sent: {result.reply}"
        await _store_reason(services, endpoint, reason)
        raise ReceiverNotVerified(reason)
    return endpoint


async def try_confirmation(services: Services, endpoint: NoticeEndpoint) -> NoticeEndpoint:
    """Send a code to the endpoint's address; its status reason says whether it was sent."""
    try:
        return await send_confirmation(services, endpoint)
    except (ReceiverNotVerified, RateLimited) as error:
        return await _store_reason(services, endpoint, error.detail)


async def confirm_address(
    services: Services, caller: ApiKey, endpoint_id: str, code: str
) -> NoticeEndpoint:
    """The endpoint, enabled because `code` was sent to its address in the last day.

    Raises:
        ReceiverNotVerified: it was not.
        RateLimited: the caller verified too often in a minute.
        NoticeEndpointNotFound: no such endpoint, or it belongs to another account.
    """
    confirm = partial(
        services.store.confirm_mail_endpoint,
        endpoint_id,
        code_digest(code),
        of_account=caller.account_filter,
    )
    with services.verifier.slot(caller):
        endpoint = await to_thread.run_sync(confirm)
    if endpoint is None:
        raise ReceiverNotVerified("no valid code: it is wrong, expired, or of another address")
    return endpoint


async def send_test_mail(services: Services, endpoint: NoticeEndpoint) -> EndpointTest:
    """Send a test to the endpoint's address; the result has the mail server's reply.

    Raises:
        ReceiverNotVerified: the address is not confirmed, or no mail server is configured.
    """
    mailer, address = _mailer(services), endpoint.mail_address
    if endpoint.validated_ms is None or address is None:
        raise ReceiverNotVerified("the address is not confirmed")
    mail_id = TEST_ID_PREFIX + token_hex(16)
    mail = test_mail(mail_id, address, endpoint.account_id, endpoint.id, now_ms())
    start_s = time.monotonic()
    result = await mailer.send(mail)
    duration_ms = round(1_000 * (time.monotonic() - start_s))
    reason = None if result.is_accepted else result.reply
    response = None if result.status is None else result.reply
    return EndpointTest(result.is_accepted, result.status, reason, duration_ms, response)


def _new_code() -> str:
    """A random code of 60 bits: at the rate limit of the API it cannot be guessed in a day."""
    letters = [choice(_CODE_ALPHABET) for _ in range(_CODE_CHARS)]
    return "-".join("".join(group) for group in zip(*[iter(letters)] * _GROUP_CHARS, strict=True))


def _mailer(services: Services) -> Mailer:
    if services.mailer is None:
        raise ReceiverNotVerified(_NO_SERVER)
    return services.mailer


def _console_page(services: Services, endpoint: NoticeEndpoint) -> str:
    """The page that takes the code; empty if browsers have no known URL."""
    settings = services.settings
    if not (settings.public_url and settings.console):
        return ""
    return f"{settings.public_url}/console/notice-endpoints/{endpoint.id}"


async def _store_reason(
    services: Services, endpoint: NoticeEndpoint, reason: str
) -> NoticeEndpoint:
    return await to_thread.run_sync(
        services.store.refuse_notice_endpoint, endpoint.id, endpoint.url, reason
    )
