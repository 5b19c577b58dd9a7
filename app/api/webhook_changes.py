"""Registering and changing webhooks, where it takes more than a word to the store.

Every door through which webhooks are registered or changed comes here.
"""

from starlette.concurrency import run_in_threadpool

from app.api.access import account_meant
from app.api.doors import Doors
from app.api.models.webhooks import Rotation, WebhookChange, WebhookRequest
from app.api.problems import INVALID_REQUEST, NOT_VALIDATED, FieldError, Problem
from app.domain.accounts import ApiKey
from app.domain.model import NewWebhook, Webhook, WebhookStatus
from app.webhooks.signing import (
    SECRET_BYTES_MAX,
    SECRET_BYTES_MIN,
    SECRET_PREFIX,
    SecretRefused,
    check_secret,
    new_secret,
)


async def register(doors: Doors, caller: ApiKey, asked: WebhookRequest) -> Webhook:
    """The webhook, stored; ENABLED if its receiver proves itself at once, else PENDING.

    Raises:
        Problem: the secret is none, the account is another's, or too many proofs are asked for.
        UrlRefused: no webhook may have its URL.
        AccountNotFound, TooManyWebhooks.
    """
    new = _new_webhook(doors, caller, asked)
    at_most = None if caller.sees is None else doors.settings.webhooks_per_account
    with doors.proofs.place(caller):
        webhook = await run_in_threadpool(_create, doors, new, asked.event_types, at_most)
        return await doors.proofs.settle(webhook)


def _new_webhook(doors: Doors, caller: ApiKey, asked: WebhookRequest) -> NewWebhook:
    account_id = account_meant(caller, asked.account_id) or caller.account.id
    doors.guard.check_url(asked.url)
    secret = _secret(asked.secret)
    return NewWebhook(asked.url, asked.description, secret, account_id, asked.validation)


def _secret(given: str | None) -> str:
    if given is None:
        return new_secret()
    try:
        check_secret(given)
    except SecretRefused as refusal:
        raise _refused_secret(str(refusal)) from None
    if not given.startswith(SECRET_PREFIX):
        raise _refused_secret(f"it does not begin with {SECRET_PREFIX}")
    return given


def _refused_secret(reason: str) -> Problem:
    allowed = f"{SECRET_PREFIX} and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64"
    # Not shown: it may be the secret of something else.
    problem = Problem.of_fields(INVALID_REQUEST, [FieldError("secret", None, allowed)])
    problem.detail = f"secret: {reason}"
    return problem


def _create(
    doors: Doors, new: NewWebhook, event_types: list[str] | None, at_most: int | None
) -> Webhook:
    doors.store.check_account(new.account_id)
    return doors.store.create_webhook(new, at_most=at_most, event_types=event_types or ())


async def change(doors: Doors, caller: ApiKey, webhook_id: str, asked: WebhookChange) -> Webhook:
    """The webhook, changed; at another URL it is PENDING unless the receiver there proves itself.

    Raises:
        UrlRefused: no webhook may have its new URL.
        Problem: too many proofs are asked for.
        WebhookNotFound: there is none of this id, or it is another account's.
    """
    if asked.url is None:
        return await _change(doors, caller, webhook_id, asked)
    doors.guard.check_url(asked.url)
    with doors.proofs.place(caller):
        webhook = await _change(doors, caller, webhook_id, asked)
        if webhook.status is WebhookStatus.PENDING:
            webhook = await doors.proofs.settle(webhook)
    return webhook


async def _change(doors: Doors, caller: ApiKey, webhook_id: str, asked: WebhookChange) -> Webhook:
    return await run_in_threadpool(
        doors.store.update_webhook,
        webhook_id,
        url=asked.url,
        description=asked.description,
        of_account=caller.sees,
    )


async def enable(doors: Doors, caller: ApiKey, webhook_id: str) -> Webhook:
    """The webhook, ENABLED, for its receiver has proved itself once more.

    Raises:
        Problem: it has not, or too many proofs are asked for.
        WebhookNotFound: there is none of this id, or it is another account's.
    """
    with doors.proofs.place(caller):
        webhook = await run_in_threadpool(doors.store.webhook, webhook_id, of_account=caller.sees)
        await doors.proofs.require(webhook)
        webhook = await run_in_threadpool(doors.store.enable_webhook, webhook.id, webhook.url)
    if webhook.status is not WebhookStatus.ENABLED:
        raise Problem(NOT_VALIDATED, "its URL was changed while the receiver was asked")
    return webhook


def rotate_secret(doors: Doors, caller: ApiKey, webhook_id: str, asked: Rotation) -> Webhook:
    """The webhook with a new secret, the one before signing as well for the grace period.

    Raises:
        Problem: the secret is none.
        WebhookNotFound: there is none of this id, or it is another account's.
    """
    return doors.store.rotate_secret(
        webhook_id,
        _secret(asked.secret),
        asked.grace_period_seconds * 1_000,
        of_account=caller.sees,
    )
