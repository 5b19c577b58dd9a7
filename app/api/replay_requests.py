"""What a replay must have before it is queued: a sound window, and a receiver that may be sent to.

Every door through which replays are asked for comes here.
"""

import json
from dataclasses import asdict, replace

from starlette.concurrency import run_in_threadpool

from app.api.doors import Doors, now_ms
from app.api.problems import (
    INVALID_REQUEST,
    NOT_VALIDATED,
    URL_REFUSED,
    WEBHOOK_NOT_ENABLED,
    FieldError,
    Problem,
)
from app.api.restores import check_still_restored, what_to_restore
from app.domain.accounts import ApiKey
from app.domain.lateness import disorder_ms
from app.domain.model import (
    IdempotencyKey,
    NewReplay,
    OffsetRange,
    Replay,
    Webhook,
    WebhookStatus,
)
from app.domain.options import Only, ReplayOptions, Source
from app.domain.windows import check_stretch, check_window
from app.webhooks.guard import UrlRefused
from app.webhooks.verification import VerificationFailed, Verified


async def queue_replay(
    doors: Doors, caller: ApiKey, new: NewReplay, idempotency_key: str | None = None
) -> Replay:
    """The replay asked for, queued; or the one that was queued before under the same key.

    It is this data centre's to deliver, unless it is to be another's.

    Raises:
        Problem: the webhook or the receiver at the target URL may not be sent to.
        WindowRefused, WindowNotRetained: the window cannot be replayed.
        LogUnavailable, and those of `Store.create_replay`.
    """
    new = replace(new, origin=new.origin or doors.settings.origin)
    idempotency = None if idempotency_key is None else named(idempotency_key, new)
    if idempotency is not None:
        # Before anything is judged: when a request is repeated, its window may be too old.
        known = await run_in_threadpool(
            doors.store.find_replay_by_idempotency_key, idempotency, of_account=caller.sees
        )
        if known is not None:
            return known
    webhook, new = await run_in_threadpool(_check_here, doors, caller, new)
    await _check_receiver(doors, caller, webhook, new.options.target_url)
    replay, _ = await run_in_threadpool(
        doors.store.create_replay, new, idempotency, of_account=caller.sees, actor=caller.id
    )
    return replay


async def queue_retry(
    doors: Doors, caller: ApiKey, replay_id: str, idempotency_key: str | None = None
) -> Replay:
    """A replay of what another one gave up, and of that alone, with its options, queued.

    It goes to the data centre that had the first one, whichever is asked.

    Raises:
        ReplayNotFound: there is none of this id, or it is another account's.
        Those of `queue_replay`.
    """
    parent = await run_in_threadpool(doors.store.replay, replay_id, of_account=caller.sees)
    new = NewReplay(
        parent.webhook_id,
        parent.window,
        parent.options,
        retry_of=parent.id,
        notice=parent.notice,
        origin=parent.origin,
        source=parent.source,
    )
    return await queue_replay(doors, caller, new, idempotency_key)


def check_options(new: NewReplay, *, is_dry_run: bool) -> None:
    """Return when a replay of its source may have its options.

    Raises:
        Problem: it names those that it may not have.
    """
    if new.source is Source.LOG:
        return
    refused = []
    if new.options.only is not Only.ALL:
        # What was delivered live is told by outcomes that the log does not keep any longer either.
        refused.append(FieldError("only", new.options.only, "all, when the source is archive"))
    if is_dry_run:
        refused.append(FieldError("dryRun", True, "false, when the source is archive"))
    if refused:
        raise Problem.of_fields(INVALID_REQUEST, refused)


def check(doors: Doors, caller: ApiKey, new: NewReplay) -> Webhook:
    """The webhook of a replay that nothing known here stands against.

    Raises:
        Problem: no webhook may have the target URL.
        WindowRefused: the window cannot be replayed.
        WebhookNotFound: no such webhook, or it is another account's.
    """
    _check_target(doors, new.options)
    if new.retry_of is None:
        # The window of a replay that is tried again was judged when that one was asked for.
        is_of_log = new.source is Source.LOG
        judge = check_window if is_of_log else check_stretch
        judge(new.window, now_ms(), doors.settings.history_ms)
    return doors.store.webhook(new.webhook_id, of_account=caller.sees)


def look_up(doors: Doors, new: NewReplay) -> OffsetRange:
    """Where the records of a replay lie, were it claimed now; its worker will look anew.

    Raises:
        WindowNotRetained: the log may have deleted some of them.
        LogUnavailable: the log does not answer.
    """
    return doors.history.offsets_for(
        new.webhook_id,
        new.window,
        disorder_ms(doors.settings.lateness_ms),
        lambda partition: doors.store.late_end_offset(
            partition, new.window, origin=doors.settings.origin
        ),
    )


def _check_target(doors: Doors, options: ReplayOptions) -> None:
    if options.target_url is None:
        return
    try:
        doors.guard.check_url(options.target_url)
    except UrlRefused as refusal:
        field = refusal.field.replace("url", "targetUrl", 1).replace(" ", ".")
        refused = FieldError(field, refusal.value, refusal.allowed)
        raise Problem.of_fields(URL_REFUSED, [refused]) from None


def _check_here(doors: Doors, caller: ApiKey, new: NewReplay) -> tuple[Webhook, NewReplay]:
    """The webhook, and the replay with all that nobody outside needs to be asked about."""
    webhook = check(doors, caller, new)
    if webhook.status is WebhookStatus.DISABLED:
        raise _not_enabled(webhook)
    # What is retained is known to the log alone; what another data centre's log has, to its worker.
    if new.origin != doors.settings.origin:
        return webhook, new
    if new.source is Source.LOG:
        look_up(doors, new)
    elif new.retry_of is None:
        new = replace(new, awaits=what_to_restore(doors, new))
    else:
        check_still_restored(doors, new.retry_of)
    return webhook, new


async def _check_receiver(
    doors: Doors, caller: ApiKey, webhook: Webhook, target_url: str | None
) -> None:
    """Let receivers that have not yet done so prove that they are the webhook's owner's."""
    is_elsewhere = target_url is not None and target_url != webhook.url
    if webhook.status is WebhookStatus.ENABLED and not is_elsewhere:
        return
    with doors.proofs.place(caller):
        if webhook.status is not WebhookStatus.ENABLED:
            webhook = await doors.proofs.settle(webhook)
        if webhook.status is not WebhookStatus.ENABLED:
            raise _not_enabled(webhook)
        proof = await doors.proofs.prove(webhook, target_url) if is_elsewhere else Verified()
    if isinstance(proof, VerificationFailed):
        refused = FieldError("targetUrl", target_url, "a URL whose receiver proves to be yours")
        raise Problem(NOT_VALIDATED, proof.reason, [refused])


def _not_enabled(webhook: Webhook) -> Problem:
    detail = f"webhook {webhook.id!r} is {webhook.status}: {webhook.status_reason}"
    refused = FieldError("status", webhook.status, WebhookStatus.ENABLED)
    return Problem(WEBHOOK_NOT_ENABLED, detail, [refused])


def named(key: str, new: NewReplay) -> IdempotencyKey:
    """The key for what was asked, however its times and defaults were spelled.

    Source: draft-ietf-httpapi-idempotency-key-header-07, sections 2.4 and 2.7.
    """
    asked = f"{new.webhook_id}\n{new.window.from_ms}\n{new.window.to_ms}"
    if (new.options, new.retry_of) != (ReplayOptions(), None):
        asked += "\n" + json.dumps([asdict(new.options), new.retry_of])
    if new.source is not Source.LOG:
        asked += f"\n{new.source}"
    return IdempotencyKey.of(key, asked.encode())
