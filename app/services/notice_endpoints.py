"""Use cases of notice endpoints: register one, verify its receiver again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from anyio import to_thread

from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint, NoticeType
from app.domain.accounts import ApiKey
from app.services.authentication import select_account
from app.services.errors import ReceiverNotVerified
from app.services.services import Services
from app.services.webhooks import checked_secret
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

    Raises:
        InvalidRequest: the secret is not allowed.
        AccountNotAllowed, RateLimited, UrlRefused, AccountNotFound, TooManyNoticeEndpoints.
    """
    account_id = select_account(caller, registration.account_id) or caller.account.id
    services.guard.check_url(registration.url)
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
        outcome = await services.verifier.verify(endpoint)
        if isinstance(outcome, VerificationFailed):
            return await _refuse(services, endpoint, outcome)
        return await _enable(services, endpoint)


async def enable_notice_endpoint(
    services: Services, caller: ApiKey, endpoint_id: str
) -> NoticeEndpoint:
    """The enabled endpoint, after its receiver has passed the verification.

    Raises:
        ReceiverNotVerified: it did not pass.
        RateLimited.
        NoticeEndpointNotFound: no such endpoint, or it belongs to another account.
    """
    with services.verifier.slot(caller):
        read = partial(
            services.store.notice_endpoint, endpoint_id, of_account=caller.account_filter
        )
        endpoint = await to_thread.run_sync(read)
        outcome = await services.verifier.verify(endpoint)
        if isinstance(outcome, VerificationFailed):
            await _refuse(services, endpoint, outcome)
            raise ReceiverNotVerified(outcome.reason)
        return await _enable(services, endpoint)


async def _enable(services: Services, endpoint: NoticeEndpoint) -> NoticeEndpoint:
    return await to_thread.run_sync(services.store.enable_notice_endpoint, endpoint.id)


async def _refuse(
    services: Services, endpoint: NoticeEndpoint, failed: VerificationFailed
) -> NoticeEndpoint:
    return await to_thread.run_sync(
        services.store.refuse_notice_endpoint, endpoint.id, failed.reason
    )
