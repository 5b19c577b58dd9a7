"""Use cases of notice endpoints: register, update, enable, rotate the secret, send a test."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from anyio import to_thread

from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint, NoticeType
from app.domain.accounts import ApiKey
from app.domain.mail import mail_address
from app.services.authentication import select_account
from app.services.errors import FieldError, InvalidRequest, ReceiverNotVerified
from app.services.mail_endpoints import (
    check_endpoint_url,
    check_same_kind,
    send_confirmation,
    send_test_mail,
    try_confirmation,
)
from app.services.services import Services
from app.services.webhooks import checked_secret
from app.webhooks.endpoint_test import EndpointTest
from app.webhooks.verification import VerificationFailed


@dataclass(frozen=True, slots=True)
class NoticeEndpointRegistration:
    """A notice endpoint to register. Without a secret, one is generated.

    Without an account it is the caller's; without event types, it gets all notices.
    """

    url: str
    description: str
    event_types: Sequence[NoticeType] = ()
    account_id: str | None = None
    secret: str | None = field(default=None, repr=False)


async def register_notice_endpoint(
    services: Services, caller: ApiKey, registration: NoticeEndpointRegistration
) -> NoticeEndpoint:
    """The new endpoint: ENABLED if its receiver passes the verification, else PENDING.

    An e-mail address is PENDING until it is confirmed with the code that is sent to it.

    Raises:
        InvalidRequest: the secret is not allowed, or the endpoint is an e-mail address.
        AccountNotAllowed, RateLimited, UrlRefused, AccountNotFound, TooManyNoticeEndpoints.
    """
    account_id = select_account(caller, registration.account_id) or caller.account.id
    check_endpoint_url(services, registration.url)
    if registration.secret is not None and mail_address(registration.url) is not None:
        raise InvalidRequest(fields=[FieldError("secret", None, "omit it: mails are not signed")])
    new = NewNoticeEndpoint(
        account_id,
        registration.url,
        registration.description,
        checked_secret(registration.secret),
        tuple(registration.event_types),
    )

    def create() -> NoticeEndpoint:
        services.store.check_account(account_id)
        return services.store.create_notice_endpoint(new)

    with services.verifier.slot(caller):
        endpoint = await to_thread.run_sync(create)
        if endpoint.mail_address is not None:
            return await try_confirmation(services, endpoint)
        outcome = await services.verifier.verify(endpoint)
        if isinstance(outcome, VerificationFailed):
            return await _refuse(services, endpoint, outcome)
        return await _enable(services, endpoint)


async def update_notice_endpoint(
    services: Services,
    caller: ApiKey,
    endpoint_id: str,
    *,
    url: str | None = None,
    description: str | None = None,
    event_types: Sequence[NoticeType] | None = None,
) -> NoticeEndpoint:
    """The changed endpoint; empty `event_types` are all.

    The receiver at a new URL is verified before the change, so that no pending notice is dropped
    meanwhile. If it does not pass, the endpoint is PENDING. So it is with a new e-mail address,
    until that is confirmed.

    Raises:
        InvalidRequest: an address instead of a URL, or the other way round.
        UrlRefused, RateLimited.
        NoticeEndpointNotFound: no such endpoint, or it belongs to another account.
    """
    update = partial(
        services.store.update_notice_endpoint,
        endpoint_id,
        description=description,
        event_types=event_types,
        of_account=caller.account_filter,
    )
    if url is None:
        return await to_thread.run_sync(update)
    check_endpoint_url(services, url)
    with services.verifier.slot(caller):
        endpoint = await _read(services, caller, endpoint_id)
        if url == endpoint.url:
            return await to_thread.run_sync(update)
        check_same_kind(endpoint, url)
        if endpoint.mail_address is not None:
            reason = "the address is not confirmed"
            changed = await to_thread.run_sync(partial(update, url=url, refusal=reason))
            return await try_confirmation(services, changed)
        outcome = await services.verifier.verify(endpoint, url)
        refusal = outcome.reason if isinstance(outcome, VerificationFailed) else None
        return await to_thread.run_sync(partial(update, url=url, refusal=refusal))


async def enable_notice_endpoint(
    services: Services, caller: ApiKey, endpoint_id: str
) -> NoticeEndpoint:
    """The enabled endpoint, after its receiver has passed the verification.

    If it has an e-mail address that is not confirmed, another code is sent there, and the endpoint
    keeps its status.

    Raises:
        ReceiverNotVerified: it did not pass, or the URL was changed meanwhile, or the mail server
            did not accept the mail.
        RateLimited.
        NoticeEndpointNotFound: no such endpoint, or it belongs to another account.
    """
    with services.verifier.slot(caller):
        endpoint = await _read(services, caller, endpoint_id)
        if endpoint.mail_address is None:
            await _require(services, endpoint)
        elif endpoint.validated_ms is None:
            return await send_confirmation(services, endpoint)
        enabled = await _enable(services, endpoint)
    if enabled.url != endpoint.url:
        raise ReceiverNotVerified("the URL was changed during the verification")
    return enabled


def rotate_notice_secret(
    services: Services, caller: ApiKey, endpoint_id: str, secret: str | None, grace_period_s: int
) -> NoticeEndpoint:
    """The endpoint with a new secret; the previous one also signs during the grace period.

    Raises:
        InvalidRequest: the secret is not allowed, or the endpoint is an e-mail address.
        NoticeEndpointNotFound: no such endpoint, or it belongs to another account.
    """
    endpoint = services.store.notice_endpoint(endpoint_id, of_account=caller.account_filter)
    if endpoint.mail_address is not None:
        raise InvalidRequest("the endpoint has no secret: mails are not signed")
    return services.store.rotate_notice_secret(
        endpoint_id,
        checked_secret(secret),
        grace_period_s * 1_000,
        of_account=caller.account_filter,
    )


async def send_test_notice(services: Services, caller: ApiKey, endpoint_id: str) -> EndpointTest:
    """Send a test event to the receiver of an endpoint, or a mail to its confirmed address.

    See `Verifier.send_test`.

    Raises:
        ReceiverNotVerified: the address is not confirmed.
        RateLimited.
        NoticeEndpointNotFound: no such endpoint, or it belongs to another account.
    """
    with services.verifier.slot(caller):
        endpoint = await _read(services, caller, endpoint_id)
        if endpoint.mail_address is not None:
            return await send_test_mail(services, endpoint)
        is_verified = endpoint.validated_ms is not None
        return await services.verifier.send_test(endpoint, caller, is_verified=is_verified)


async def _read(services: Services, caller: ApiKey, endpoint_id: str) -> NoticeEndpoint:
    return await to_thread.run_sync(
        partial(services.store.notice_endpoint, endpoint_id, of_account=caller.account_filter)
    )


async def _require(services: Services, endpoint: NoticeEndpoint) -> None:
    """Verify the receiver, and store why it did not pass.

    Raises:
        ReceiverNotVerified: it did not pass.
    """
    outcome = await services.verifier.verify(endpoint)
    if isinstance(outcome, VerificationFailed):
        await _refuse(services, endpoint, outcome)
        raise ReceiverNotVerified(outcome.reason)


async def _enable(services: Services, endpoint: NoticeEndpoint) -> NoticeEndpoint:
    return await to_thread.run_sync(
        services.store.enable_notice_endpoint, endpoint.id, endpoint.url
    )


async def _refuse(
    services: Services, endpoint: NoticeEndpoint, failed: VerificationFailed
) -> NoticeEndpoint:
    return await to_thread.run_sync(
        services.store.refuse_notice_endpoint, endpoint.id, endpoint.url, failed.reason
    )
