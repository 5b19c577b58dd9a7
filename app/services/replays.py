"""Use cases of replays: create, retry, estimate."""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple

from anyio import to_thread

from app.domain.accounts import ApiKey
from app.domain.forecast import duration_s
from app.domain.model import (
    IdempotencyKey,
    NewReplay,
    OffsetRange,
    Replay,
    Webhook,
    WebhookStatus,
)
from app.domain.options import Only, ReplayOptions, Source
from app.domain.type_filter import TypeFilter
from app.domain.windows import check_span, check_window
from app.log.delivered import LiveDeliveries
from app.log.estimate import EstimateQuery
from app.replay_workers.replayed import ReplayedEvents, read_replayed
from app.replay_workers.selection import locate_window
from app.services.errors import FieldError, InvalidRequest, ReceiverNotVerified, WebhookNotEnabled
from app.services.restores import check_still_restored, locate_archived
from app.services.services import Services, now_ms
from app.webhooks.guard import UrlRefused
from app.webhooks.verification import VerificationFailed, Verified


async def create_replay(
    services: Services, caller: ApiKey, new: NewReplay, idempotency_key: str | None = None
) -> Replay:
    """The created replay, or the one that was created before with the same key.

    Its data centre is this one, unless `new` names another.

    Raises:
        InvalidRequest: the source does not support the options; see `check_options`.
        WebhookNotEnabled, ReceiverNotVerified, RateLimited: the receiver may not be used.
        UrlRefused: the target URL is not allowed.
        WindowRefused, WindowNotRetained: the window cannot be replayed.
        LogUnavailable, and the errors of `Store.create_replay`.
    """
    check_options(new, is_dry_run=False)
    new = replace(new, origin=new.origin or services.settings.origin)
    idempotency = None if idempotency_key is None else fingerprint(idempotency_key, new)
    if idempotency is not None:
        # Before all checks: the window of a repeated request may be too old by now.
        known = await to_thread.run_sync(
            partial(
                services.store.find_replay_by_idempotency_key,
                idempotency,
                of_account=caller.account_filter,
            )
        )
        if known is not None:
            return known
    prepared = await to_thread.run_sync(_prepare, services, caller, new)
    webhook, new = prepared.webhook, prepared.new
    await _verify_receiver(services, caller, webhook, new.options.target_url)
    replay, _ = await to_thread.run_sync(
        partial(
            services.store.create_replay,
            new,
            idempotency,
            of_account=caller.account_filter,
            actor=caller.actor,
        )
    )
    services.replay_requests.publish(replay.id, prepared.offsets)
    return replay


async def retry_replay(
    services: Services, caller: ApiKey, replay_id: str, idempotency_key: str | None = None
) -> Replay:
    """A new replay of what another one left undelivered, with its options and data centre.

    Raises:
        ReplayNotFound: no such replay, or it belongs to another account.
        The errors of `create_replay`.
    """
    parent = await to_thread.run_sync(
        partial(services.store.replay, replay_id, of_account=caller.account_filter)
    )
    new = NewReplay(
        parent.webhook_id,
        parent.window,
        parent.options,
        retry_of=parent.id,
        notice=parent.notice,
        origin=parent.origin,
        source=parent.source,
    )
    return await create_replay(services, caller, new, idempotency_key)


def resume_replay(
    services: Services, replay_id: str, *, of_account: str | None, actor: str | None
) -> Replay:
    """Resume a PAUSED or FAILED replay at its checkpoint, and wake the workers. Blocks.

    Raises:
        The errors of `Store.resume_replay`.
    """
    replay = services.store.resume_replay(replay_id, of_account=of_account, actor=actor)
    services.replay_requests.publish(replay.id)
    return replay


@dataclass(frozen=True, slots=True)
class ReplayEstimate:
    """The size and duration of a replay; see `EstimateDocument`."""

    partition: int
    start_offset: int
    end_offset: int
    events: int
    bytes: int
    is_exact: bool
    is_upper_bound: bool
    unreadable_batches: int
    unreadable_offsets: int
    estimated_seconds: float


async def estimate_replay(services: Services, caller: ApiKey, new: NewReplay) -> ReplayEstimate:
    """How many records a replay would read and send, and how long it would take.

    Sends nothing, so the webhook need not be ENABLED. With `only: failed`, records that were
    delivered live are not counted, as far as their outcomes could be read, nor are those that
    earlier replays delivered.

    Raises:
        InvalidRequest: the source of the replay is the archive.
        RateLimited: the account has too many concurrent estimates.
        EstimatesBusy, HistoryLost, and the errors of `check_replay` and `locate_window`.
    """
    check_options(new, is_dry_run=True)
    with services.estimate_slots.slot(caller):
        return await to_thread.run_sync(_estimate, services, caller, new)


def _estimate(services: Services, caller: ApiKey, new: NewReplay) -> ReplayEstimate:
    check_replay(services, caller, new)
    offsets = locate_window(services.history, services.store, services.settings, new)
    replayed = ReplayedEvents()
    if new.options.only is Only.FAILED:
        here = replace(new, origin=services.settings.origin)
        replayed = read_replayed(services.store, here, offsets)
    found = services.estimator.estimate(
        EstimateQuery(
            offsets,
            new.webhook_id.encode(),
            new.window,
            TypeFilter(new.options.event_types).matches,
            _live_deliveries(services, new, offsets.partition),
            replayed.__contains__,
        )
    )
    seconds = duration_s(
        found.events, found.reading_s, new.options, services.settings.max_in_flight
    )
    return ReplayEstimate(
        partition=offsets.partition,
        start_offset=offsets.start,
        end_offset=offsets.end,
        events=found.events,
        bytes=found.bytes,
        is_exact=found.is_exact,
        is_upper_bound=found.is_upper_bound,
        unreadable_batches=found.unreadable_batches,
        unreadable_offsets=found.unreadable_offsets,
        estimated_seconds=round(seconds, 3),
    )


def check_options(new: NewReplay, *, is_dry_run: bool) -> None:
    """Check that the source of a replay supports its options.

    Raises:
        InvalidRequest: with the options that it does not support.
    """
    if new.source is Source.LOG:
        return
    wrong = []
    if new.options.only is not Only.ALL:
        # The outcomes of live deliveries are no longer in the log either.
        wrong.append(FieldError("only", new.options.only, "all, when the source is archive"))
    if is_dry_run:
        wrong.append(FieldError("dryRun", True, "false, when the source is archive"))
    if wrong:
        raise InvalidRequest(fields=wrong)


def check_replay(services: Services, caller: ApiKey, new: NewReplay) -> Webhook:
    """The webhook of a replay that passes all checks without the log and the receiver. Blocks.

    Raises:
        UrlRefused: the target URL is not allowed.
        WindowRefused: the window cannot be replayed.
        WebhookNotFound: no such webhook, or it belongs to another account.
    """
    _check_target_url(services, new.options)
    if new.retry_of is None:
        # The window of a retry was checked for the first replay.
        check = check_window if new.source is Source.LOG else check_span
        check(new.window, now_ms(), services.settings.history_ms)
    return services.store.webhook(new.webhook_id, of_account=caller.account_filter)


def fingerprint(key: str, new: NewReplay) -> IdempotencyKey:
    """The idempotency key with a fingerprint of the request, equal however its times are spelled.

    Source: draft-ietf-httpapi-idempotency-key-header-07, sections 2.4 and 2.7.
    """
    request = f"{new.webhook_id}\n{new.window.from_ms}\n{new.window.to_ms}"
    # A new option must be left out while it has its default: stored fingerprints do not contain it.
    if (new.options, new.retry_of) != (ReplayOptions(), None):
        request += "\n" + json.dumps([asdict(new.options), new.retry_of])
    if new.source is not Source.LOG:
        request += f"\n{new.source}"
    return IdempotencyKey.of(key, request.encode())


def _live_deliveries(services: Services, new: NewReplay, partition: int) -> LiveDeliveries | None:
    if new.options.only is not Only.FAILED:
        return None
    settings = services.settings
    late_until_ms = services.store.late_recorded_ms(partition, new.window, origin=settings.origin)
    return LiveDeliveries(settings, services.outcomes, new.webhook_id, new.window, late_until_ms)


def _check_target_url(services: Services, options: ReplayOptions) -> None:
    if options.target_url is None:
        return
    try:
        services.guard.check_url(options.target_url)
    except UrlRefused as refusal:
        field = refusal.field.replace("url", "targetUrl", 1)
        raise UrlRefused(field, refusal.value, refusal.allowed) from None


class _Prepared(NamedTuple):
    """A replay that passed all checks without the receiver.

    `offsets` are those that a worker of this data centre reads now; None if they are not known.
    """

    webhook: Webhook
    new: NewReplay
    offsets: OffsetRange | None = None


def _prepare(services: Services, caller: ApiKey, new: NewReplay) -> _Prepared:
    webhook = check_replay(services, caller, new)
    if webhook.status is WebhookStatus.DISABLED:
        raise _not_enabled(webhook)
    # Only a worker of the replay's data centre can read that data centre's log.
    if new.origin != services.settings.origin:
        return _Prepared(webhook, new)
    if new.source is Source.LOG:
        offsets = locate_window(services.history, services.store, services.settings, new)
        # A retry reads what its parent left.
        return _Prepared(webhook, new, offsets if new.retry_of is None else None)
    if new.retry_of is None:
        new = replace(new, awaits=locate_archived(services, new))
    else:
        check_still_restored(services, new.retry_of)
    return _Prepared(webhook, new)


async def _verify_receiver(
    services: Services, caller: ApiKey, webhook: Webhook, target_url: str | None
) -> None:
    """Verify the receivers of the webhook and of the target URL, if not yet verified."""
    is_elsewhere = target_url is not None and target_url != webhook.url
    if webhook.status is WebhookStatus.ENABLED and not is_elsewhere:
        return
    with services.verifier.slot(caller):
        if webhook.status is not WebhookStatus.ENABLED:
            webhook = await services.verifier.verify_and_enable(webhook)
        if webhook.status is not WebhookStatus.ENABLED:
            raise _not_enabled(webhook)
        outcome = (
            await services.verifier.verify(webhook, target_url) if is_elsewhere else Verified()
        )
    if isinstance(outcome, VerificationFailed):
        allowed = "a URL whose receiver passes the webhook's verification"
        raise ReceiverNotVerified(outcome.reason, [FieldError("targetUrl", target_url, allowed)])


def _not_enabled(webhook: Webhook) -> WebhookNotEnabled:
    detail = f"webhook {webhook.id!r} is {webhook.status}: {webhook.status_reason}"
    wrong = FieldError("status", webhook.status, WebhookStatus.ENABLED)
    return WebhookNotEnabled(detail, [wrong])
