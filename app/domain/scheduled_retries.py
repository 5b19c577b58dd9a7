"""Scheduled retries: attempts of an event minutes to days after its live attempts have failed.

Live delivery makes the first attempts of an event within minutes, and keeps it in memory meanwhile.
If they fail for reasons of this event (others are accepted, so no recovery begins), each later
retry is a row of the database, like a resend. A worker makes the attempt when it is due.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from app.domain.deliveries import DeliveryPlace
from app.domain.delivery import Rejected, Unreachable
from app.domain.model import Webhook
from app.domain.resends import ResendResult
from app.domain.retry import (
    RETRY_AFTER_S_MAX,
    SPREAD,
    exceeds_schedule,
    is_permanent,
    retry_after_s,
)

WAITING_MAX: Final = 1_000
"""Events of one webhook that wait for a scheduled retry; a further one is failed."""

COPIES_MAX: Final = 1_000
"""Copies of an event that are pending with it; further ones show as failed."""

LIMIT_REASON: Final = f"{WAITING_MAX:,} other events of the webhook wait for a retry"

SCHEDULED_REASON: Final = "the live attempts failed before a restart; a retry is scheduled"

TOTAL_S_MAX: Final = 4 * 86_400
"""The longest schedule of a webhook, all pauses together; by default the log has events for five
days."""


class NewScheduledRetry(NamedTuple):
    """An event whose live `attempts` have failed; its first scheduled retry is due in `pause_s`.

    `copies` are the offsets of its other records in the same partition, at most `COPIES_MAX`.
    """

    webhook_id: str
    place: DeliveryPlace
    event_id: str
    event_type: str
    event_ms: int
    pause_s: float
    attempts: int
    copies: tuple[int, ...] = ()


class RetryProgress(NamedTuple):
    """How far the scheduled retries of a delivery are.

    `attempts` counts all that were made, live ones included. `next_ms` is when the next one is due;
    None while a worker makes it, and at the end. `result` is that of the last one, at `ended_ms`;
    None while a retry is pending.
    """

    attempts: int
    next_ms: int | None = None
    result: ResendResult | None = None
    ended_ms: int | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the delivery waits for a retry."""
        return self.result is None

    @classmethod
    def of_last(
        cls,
        attempts: int,
        due_ms: int | None,
        result: ResendResult | None = None,
        ended_ms: int | None = None,
    ) -> Self:
        """The progress with a last retry that had `attempts` before it."""
        if result is None:
            return cls(attempts, due_ms)
        return cls(attempts + result.is_sent, None, result, ended_ms)


class WaitingRetries(NamedTuple):
    """The events of a webhook that wait for a scheduled retry, and when the first one is due.

    `next_ms` is None while workers make the retries of all of them.
    """

    events: int
    next_ms: int | None


class RetrySchedule(NamedTuple):
    """The pauses before the retries of an event, in seconds: first live ones, then scheduled ones.

    Source: Standard Webhooks 1.0.0, "Retries".
    """

    live_s: tuple[float, ...]
    scheduled_s: tuple[float, ...]

    def of_webhook(self, webhook: Webhook) -> "RetrySchedule":
        """The schedule of a webhook, where this one is the operator's.

        Of its own pauses, as many are live as the operator's live pauses allow: replays that skip
        delivered events search outcomes for as long as these. In strict order none is scheduled,
        because later events would overtake the one that waits.
        """
        own_s = None if webhook.options is None else webhook.options.retry_schedule_s
        found = self if not own_s else split_schedule(own_s, self.live_s)
        return found._replace(scheduled_s=()) if webhook.is_ordered else found


def split_schedule(pauses_s: Sequence[float], operators_live_s: Sequence[float]) -> RetrySchedule:
    """Split a webhook's pauses: the live ones are those that the operator's live pauses allow."""
    count = len(pauses_s)
    while count and exceeds_schedule(pauses_s[:count], operators_live_s):
        count -= 1
    return RetrySchedule(tuple(pauses_s[:count]), tuple(pauses_s[count:]))


def scheduled_pause_s(
    scheduled_s: Sequence[float], number: int, outcome: Rejected | Unreachable, jitter: float
) -> float | None:
    """The pause before the scheduled retry `number` (from 0) after a failure; None without one.

    `jitter` is in [0, 1). A Retry-After header lengthens the pause, up to `RETRY_AFTER_S_MAX`.
    """
    if is_permanent(outcome) or number >= len(scheduled_s):
        return None
    pause_s = scheduled_s[number] * (1 - SPREAD + 2 * SPREAD * jitter)
    return max(pause_s, retry_after_s(outcome, RETRY_AFTER_S_MAX))
