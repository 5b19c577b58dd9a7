"""Use cases of webhooks: register, update, enable, rotate the secret, send a test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from anyio import to_thread

from app.domain.accounts import ApiKey
from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions
from app.domain.model import NewWebhook, Validation, Webhook, WebhookStatus
from app.services.authentication import select_account
from app.services.endpoint_options import check_options
from app.services.errors import FieldError, InvalidRequest, ReceiverNotVerified
from app.services.services import Services
from app.webhooks.endpoint_test import EndpointTest
from app.webhooks.signing import (
    SECRET_BYTES_MAX,
    SECRET_BYTES_MIN,
    SECRET_PREFIX,
    SecretRefused,
    check_secret,
    new_secret,
)


@dataclass(frozen=True, slots=True)
class WebhookRegistration:
    """A webhook to register. Without a secret, one is generated; without an account, the caller's.

    Without event types, the webhook has no rule.
    """

    url: str
    description: str
    validation: Validation
    event_types: Sequence[str] = ()
    account_id: str | None = None
    secret: str | None = field(default=None, repr=False)
    auto_recovery: bool = True
    options: EndpointOptions = NO_OPTIONS


async def register_webhook(
    services: Services, caller: ApiKey, registration: WebhookRegistration
) -> Webhook:
    """The new webhook: ENABLED if its receiver passes the verification, else PENDING.

    Raises:
        InvalidRequest: the secret or an option is not allowed.
        AccountNotAllowed, RateLimited, UrlRefused, AccountNotFound, TooManyWebhooks, TooManyRules.
    """
    account_id = select_account(caller, registration.account_id) or caller.account.id
    services.guard.check_url(registration.url)
    new = NewWebhook(
        registration.url,
        registration.description,
        checked_secret(registration.secret),
        account_id,
        registration.validation,
        registration.auto_recovery,
        check_options(services, registration.options),
    )
    at_most = None if caller.account_filter is None else services.settings.webhooks_per_account

    def create() -> Webhook:
        services.store.check_account(account_id)
        return services.store.create_webhook(
            new, at_most=at_most, event_types=registration.event_types
        )

    with services.verifier.slot(caller):
        return await services.verifier.verify_and_enable(await to_thread.run_sync(create))


async def update_webhook(
    services: Services,
    caller: ApiKey,
    webhook_id: str,
    *,
    url: str | None = None,
    description: str | None = None,
    auto_recovery: bool | None = None,
    change_options: Callable[[EndpointOptions], EndpointOptions] | None = None,
    event_types: Sequence[str] | None = None,
) -> Webhook:
    """The changed webhook; with a new URL it is PENDING unless the receiver there passes.

    `event_types` are those of the rule `default`; without any, it is deleted.

    Raises:
        InvalidRequest: the changed options are not allowed.
        UrlRefused, RateLimited, TooManyRules.
        WebhookNotFound: no such webhook, or it belongs to another account.
    """
    check_and_change = None
    if change_options is not None:

        def check_and_change(options: EndpointOptions) -> EndpointOptions:
            return check_options(services, change_options(options), options)

    update = partial(
        services.store.update_webhook,
        webhook_id,
        url=url,
        description=description,
        auto_recovery=auto_recovery,
        change_options=check_and_change,
        event_types=event_types,
        of_account=caller.account_filter,
    )
    if url is None:
        return await to_thread.run_sync(update)
    services.guard.check_url(url)
    with services.verifier.slot(caller):
        webhook = await to_thread.run_sync(update)
        if webhook.status is WebhookStatus.PENDING:
            webhook = await services.verifier.verify_and_enable(webhook)
    return webhook


async def enable_webhook(services: Services, caller: ApiKey, webhook_id: str) -> Webhook:
    """The enabled webhook, after its receiver has passed the verification.

    Raises:
        ReceiverNotVerified: it did not pass, or the URL was changed meanwhile.
        RateLimited.
        WebhookNotFound: no such webhook, or it belongs to another account.
    """
    with services.verifier.slot(caller):
        webhook = await _read_webhook(services, caller, webhook_id)
        await services.verifier.require(webhook)
        webhook = await services.verifier.enable(webhook)
    if webhook.status is not WebhookStatus.ENABLED:
        raise ReceiverNotVerified("the URL was changed during the verification")
    return webhook


def rotate_secret(
    services: Services, caller: ApiKey, webhook_id: str, secret: str | None, grace_period_s: int
) -> Webhook:
    """The webhook with a new secret; the previous one also signs during the grace period.

    Raises:
        InvalidRequest: the secret is not allowed.
        WebhookNotFound: no such webhook, or it belongs to another account.
    """
    return services.store.rotate_secret(
        webhook_id,
        checked_secret(secret),
        grace_period_s * 1_000,
        of_account=caller.account_filter,
    )


async def send_test(services: Services, caller: ApiKey, webhook_id: str) -> EndpointTest:
    """Send a test event to the receiver of a webhook, whatever its status.

    See `Verifier.send_test`.

    Raises:
        RateLimited.
        WebhookNotFound: no such webhook, or it belongs to another account.
    """
    with services.verifier.slot(caller):
        webhook = await _read_webhook(services, caller, webhook_id)
        is_verified = webhook.validated_ms is not None
        return await services.verifier.send_test(webhook, caller, is_verified=is_verified)


async def _read_webhook(services: Services, caller: ApiKey, webhook_id: str) -> Webhook:
    return await to_thread.run_sync(
        partial(services.store.webhook, webhook_id, of_account=caller.account_filter)
    )


def checked_secret(secret: str | None) -> str:
    """The secret, or a new one if it is None.

    Raises:
        InvalidRequest: the secret is not allowed.
    """
    if secret is None:
        return new_secret()
    try:
        check_secret(secret)
    except SecretRefused as refusal:
        raise _secret_refused(str(refusal)) from None
    if not secret.startswith(SECRET_PREFIX):
        raise _secret_refused(f"it does not begin with {SECRET_PREFIX}")
    return secret


def _secret_refused(reason: str) -> InvalidRequest:
    allowed = f"{SECRET_PREFIX} and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
    # Without its value: it may be a secret of something else.
    return InvalidRequest(f"secret: {reason}", [FieldError("secret", None, allowed)])
