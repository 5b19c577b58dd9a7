"""A delivery in a list, and with everything that the log has of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.domain.deliveries import (
    STATUS_OF_OUTCOME,
    AttemptRecord,
    DeliveryPlace,
    DeliveryReplay,
    DeliveryStatus,
    format_delivery_id,
)
from app.domain.scheduled_retries import RetryProgress
from app.log.browser.partition_scan import RawRecord
from app.log.event import header_text, is_presentable, place_name
from app.log.outcomes import DeliveryOutcome
from app.log.topics import DELIVERY_LOG

INTERNAL_HEADERS: Final = frozenset(("audit", "server", "account-id"))
"""Headers of a record that only operators see."""

UNKNOWN_REASON: Final = "no outcome was found in the log"


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """A delivery in a list.

    `time_ms` is the event time; `settled_ms` is when a settled one got its outcome. `status` is
    None if its outcome was not found. `response_status` is the last HTTP status.
    `next_attempt_ms` is when the next retry is due, if that is known: in a list, only that of a
    scheduled one is.
    """

    place: DeliveryPlace
    webhook_id: str
    event_id: str
    event_type: str
    time_ms: int
    status: DeliveryStatus | None
    attempts: int = 0
    response_status: int | None = None
    reason: str | None = None
    settled_ms: int | None = None
    duration_ms: float | None = None
    next_attempt_ms: int | None = None

    @property
    def id(self) -> str:
        """Its id, which names its place in the log."""
        return format_delivery_id(self.place)

    def after_resend(self) -> "DeliverySummary":
        """The delivery after a resend that succeeded; retries of a pending one continue."""
        if self.status is DeliveryStatus.PENDING:
            return self
        return replace(self, status=DeliveryStatus.SUCCEEDED, reason=None)

    def with_retries(self, progress: RetryProgress) -> "DeliverySummary":
        """The delivery with its scheduled retries; `reason` is that of the last known attempt."""
        result = progress.result
        if result is None:
            return replace(
                self,
                status=DeliveryStatus.PENDING,
                attempts=progress.attempts,
                settled_ms=None,
                next_attempt_ms=progress.next_ms,
            )
        if self.status is DeliveryStatus.SUCCEEDED:
            return self
        return replace(
            self,
            status=result.status,
            attempts=progress.attempts,
            response_status=result.response_status,
            reason=result.reason,
            settled_ms=progress.ended_ms,
            duration_ms=result.duration_ms,
        )


@dataclass(frozen=True, slots=True)
class DeliveryDetail:
    """A delivery with the event's body and headers, as published, and its known attempts.

    `pending_resends` are those that no worker has sent yet. `replays` sent the event again.
    """

    summary: DeliverySummary
    body: bytes
    headers: Sequence[tuple[str, bytes | None]]
    attempts: tuple[AttemptRecord, ...]
    pending_resends: int = 0
    replays: tuple[DeliveryReplay, ...] = ()

    def header_texts(self, *, with_internal: bool) -> list[tuple[str, str | None]]:
        """The headers as text; those of `INTERNAL_HEADERS` only if requested."""
        return texts_of(self.headers, with_internal=with_internal)


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    """Deliveries, pending ones first, then those that were settled last.

    `next_cursor` continues; None at the end. With `is_partial` the page ended early because it had
    read as much as one page may. `from_ms` is the begin of the window that the log still has.
    `skipped` says which offsets of the log cannot be read. `offsets` are those of the records that
    the items were read from: of pending ones in `delivery_log`, else in `delivery_outcomes`.
    """

    items: tuple[DeliverySummary, ...]
    next_cursor: str | None
    is_partial: bool
    from_ms: int
    skipped: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()


def of_outcome(record: RawRecord, outcome: DeliveryOutcome, origin: str) -> DeliverySummary:
    """The delivery of a record of `delivery_outcomes`, in the data centre `origin`."""
    headers = headers_of(record)
    return DeliverySummary(
        DeliveryPlace(origin, outcome.partition, outcome.offset),
        webhook_id=text_of(record.key),
        event_id=outcome.event_id,
        event_type=header_text(headers.get("event-type")),
        time_ms=record.timestamp_ms or 0,
        status=STATUS_OF_OUTCOME[outcome.outcome],
        attempts=outcome.attempts,
        response_status=outcome.status,
        reason=outcome.reason,
        settled_ms=outcome.time_ms,
        duration_ms=outcome.duration_ms,
    )


def of_record(
    record: RawRecord, origin: str, status: DeliveryStatus | None, reason: str | None = None
) -> DeliverySummary:
    """The delivery of a record of `delivery_log` without an outcome."""
    headers = headers_of(record)
    event_id = header_text(headers.get("event-id"))
    return DeliverySummary(
        DeliveryPlace(origin, record.partition, record.offset),
        webhook_id=text_of(record.key),
        event_id=event_id
        if is_presentable(event_id)
        else place_name(DELIVERY_LOG, record.partition, record.offset),
        event_type=header_text(headers.get("event-type")),
        time_ms=record.timestamp_ms or 0,
        status=status,
        reason=reason,
    )


def headers_of(record: RawRecord) -> Mapping[str, bytes | None]:
    """The headers of a record; none if they are not readable."""
    return dict(record.headers or ())


def text_of(key: bytes | None) -> str:
    """The key of a record as text."""
    return (key or b"").decode("utf-8", "replace")


def texts_of(
    headers: Sequence[tuple[str, bytes | None]], *, with_internal: bool
) -> list[tuple[str, str | None]]:
    """Headers as text; those of `INTERNAL_HEADERS` only if requested."""
    return [
        (name, None if value is None else value.decode("utf-8", "replace"))
        for name, value in headers
        if with_internal or name not in INTERNAL_HEADERS
    ]
