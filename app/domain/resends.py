"""Resends: deliveries that are sent once more, on request or as a scheduled retry."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.deliveries import AttemptRecord, AttemptTrigger, DeliveryPlace, DeliveryStatus

RESEND_PREFIX: Final = "rsd_"
"""What the ids of resends begin with."""

RESENDS_PER_REQUEST_MAX: Final = 100

PENDING_MAX: Final = 1_000
"""Pending resends of one webhook; replays are for more events."""

CLAIMS_MAX: Final = 5
"""A resend that so many workers did not finish is given up: it may be what kills them."""

CONCURRENT_MAX: Final = 8
"""Resends that a worker sends at the same time."""

PER_ACCOUNT_MAX: Final = CONCURRENT_MAX // 2
"""Those of one account: receivers that do not answer must not delay other accounts."""

PER_WEBHOOK_MAX: Final = 2
"""Those of one webhook."""


class ScheduledRetry(NamedTuple):
    """What makes a resend a scheduled retry: `number` counts those of its delivery, from 0.

    `attempts` is the number of attempts that the event had before, live ones and retries. `copies`
    are the offsets of further records of the event, which are settled with it.
    """

    number: int
    event_ms: int
    attempts: int
    event_id: str
    event_type: str
    copies: tuple[int, ...] = ()


class NewResend(NamedTuple):
    """A delivery to send once more."""

    place: DeliveryPlace
    event_id: str


class ResendResult(NamedTuple):
    """How a resend ended: `status` is succeeded, failed, or skipped if nothing was sent."""

    status: DeliveryStatus
    duration_ms: float | None = None
    response_status: int | None = None
    reason: str | None = None
    response: str | None = None

    @property
    def is_sent(self) -> bool:
        """Whether a request was made."""
        return self.duration_ms is not None


@dataclass(frozen=True, slots=True)
class Resend:
    """A resend: one attempt, which a worker makes. `result` is None while it is pending.

    `retry` is None if it was requested. `due_ms` is when a scheduled retry is due; None once a
    worker has claimed it.
    """

    id: str
    webhook_id: str
    place: DeliveryPlace
    event_id: str
    created_ms: int
    result: ResendResult | None = None
    finished_ms: int | None = None
    worker: str | None = None
    retry: ScheduledRetry | None = None
    due_ms: int | None = None

    @property
    def places(self) -> tuple[DeliveryPlace, ...]:
        """Its place, and those of the copies of a retried event."""
        copies = () if self.retry is None else self.retry.copies
        return (self.place, *(self.place._replace(offset=each) for each in copies))

    @property
    def status(self) -> DeliveryStatus:
        """Pending, or that of its result."""
        return DeliveryStatus.PENDING if self.result is None else self.result.status


class ResendClaim(NamedTuple):
    """A resend that a worker sends. `claims` is the number of its claims, this one included.

    `retry` is None if it was requested.
    """

    resend_id: str
    claims: int
    webhook_id: str
    account_id: str
    place: DeliveryPlace
    retry: ScheduledRetry | None = None


def attempt_of(resend: Resend, number: int) -> AttemptRecord | None:
    """The attempt that a resend made, as the `number`th of its delivery; None while it is pending.

    A resend that sent nothing is an attempt, too, which failed with its reason.
    """
    result = resend.result
    if result is None or resend.finished_ms is None:
        return None
    return AttemptRecord(
        number=number,
        time_ms=resend.finished_ms,
        duration_ms=result.duration_ms,
        status=result.response_status,
        reason=result.reason,
        response=result.response,
        server=resend.worker or "",
        trigger=AttemptTrigger.RESEND if resend.retry is None else AttemptTrigger.RETRY,
    )
