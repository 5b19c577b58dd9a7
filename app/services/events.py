"""Use case of publishing: events into the log."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from app.config import Settings
from app.domain.lateness import AHEAD_MS_MAX, Arrival
from app.domain.windows import format_time
from app.log.event import NewEvent
from app.log.late_notes import note_late
from app.log.topics import DELIVERY_LOG, EVENTS
from app.services.errors import FieldError, InvalidRequest, UnknownReceivers
from app.services.services import Services


@dataclass(frozen=True, slots=True)
class EventLimits:
    """The limits of an event's time, `[oldest_ms, newest_ms]`, and size, and of their number.

    A record from the future would mislead every later lookup by time: the log finds the first
    record at or after a time. An event older than the history could not be replayed.
    """

    oldest_ms: int
    newest_ms: int
    event_bytes_max: int
    events_max: int
    now_ms: int
    """The time of events that name none."""

    @classmethod
    def of(cls, settings: Settings, now_ms: int) -> Self:
        """The limits of `settings` as of `now_ms`."""
        return cls(
            oldest_ms=now_ms - settings.history_ms,
            newest_ms=now_ms + AHEAD_MS_MAX,
            event_bytes_max=settings.event_bytes_max,
            events_max=settings.events_per_request_max,
            now_ms=now_ms,
        )

    @property
    def times_allowed(self) -> str:
        """The allowed times, in words."""
        return f"{format_time(self.oldest_ms)} to {format_time(self.newest_ms)}"

    @property
    def size_allowed(self) -> str:
        """The allowed size, in words."""
        return f"at most {self.event_bytes_max} bytes with id, type and time"


async def publish_events(services: Services, events: Sequence[NewEvent]) -> None:
    """Publish events to `delivery_log`, those without a webhook to `events`; until acknowledged.

    Raises:
        UnknownReceivers: some events name webhooks or accounts that do not exist.
        InvalidRequest: some events name a webhook of another account than the one they name.
        PublishFailed, LogUnavailable, StoreUnavailable: some events may be published.
    """
    addressed = [event for event in events if event.webhook_id is not None]
    if addressed or any(event.account_id is not None for event in events):
        await _check_receivers(services, events)
    if len(addressed) == len(events):
        await _publish_addressed(services, addressed)
    elif not addressed:
        await _publish(services, EVENTS, events)
    else:
        others = [event for event in events if event.webhook_id is None]
        await asyncio.gather(
            _publish_addressed(services, addressed), _publish(services, EVENTS, others)
        )


async def _check_receivers(services: Services, events: Sequence[NewEvent]) -> None:
    """Return if all webhooks and accounts exist, and webhooks belong to the accounts.

    Raises:
        UnknownReceivers, InvalidRequest: see `publish_events`; nothing was published.
    """
    webhook_ids = frozenset(each.webhook_id for each in events if each.webhook_id is not None)
    account_ids = frozenset(each.account_id for each in events if each.account_id is not None)
    owners, unknown_accounts = await services.receivers.find(webhook_ids, account_ids)
    unknown, unfit = [], []
    for index, event in enumerate(events):
        if event.webhook_id is not None and event.webhook_id not in owners:
            field = f"events[{index}].webhookId"
            unknown.append(FieldError(field, event.webhook_id, "the id of a webhook"))
        if event.account_id in unknown_accounts:
            field = f"events[{index}].accountId"
            unknown.append(FieldError(field, event.account_id, "the id of an account"))
        elif event.account_id is not None and event.webhook_id is not None:
            owner = owners.get(event.webhook_id, event.account_id)
            if event.account_id != owner:
                allowed = f"{owner}, the account of the webhook, or none"
                unfit.append(FieldError(f"events[{index}].accountId", event.account_id, allowed))
    if unknown:
        raise UnknownReceivers(fields=unknown)
    if unfit:
        raise InvalidRequest(fields=unfit)


async def _publish_addressed(services: Services, events: Sequence[NewEvent]) -> None:
    """Publish events, and store the positions of late ones, by which replays find them."""
    arrivals = await _publish(services, DELIVERY_LOG, events)
    settings = services.settings
    await note_late(
        services.store,
        arrivals,
        origin=settings.origin,
        lateness_ms=settings.lateness_ms,
        retention_ms=settings.retention_ms,
    )


async def _publish(services: Services, topic: str, events: Sequence[NewEvent]) -> list[Arrival]:
    if not events:
        return []
    arrivals = await services.publisher.publish(topic, events)
    services.metrics.count_events(topic, len(events))
    return arrivals
