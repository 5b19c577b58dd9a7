"""Outcomes of delivery attempts and of live deliveries."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver answered with a 2xx status."""

    status: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The receiver answered with a status other than 2xx.

    `retry_after_s` is the wait of its Retry-After header, counted from the answer, at least 0; None
    without a readable header. `response` is the beginning of the response body.
    """

    status: int
    retry_after_s: float | None
    reason: str
    response: str = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No complete response arrived. The receiver may have processed the event."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """The sender withheld the request. It does not count as an attempt."""


AttemptOutcome = Delivered | Rejected | Unreachable | NotSent


class LiveOutcome(StrEnum):
    """The final result of a live delivery; the values are stored in `delivery_outcomes`."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """All attempts failed, or the receiver rejected the event permanently."""

    SKIPPED = "left"
    """Left to a replay; the reason says why: the webhook's delivery queue was full, the event too
    old, the receiver failing, its order strict, or a replay has taken the event over."""

    DISABLED = "disabled"
    """Not sent: the webhook is not enabled, or deleted."""
