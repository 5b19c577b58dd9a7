"""Automatic recovery: the state of a webhook whose receiver keeps failing.

HEALTHY ──five retryable failures in a row, or exhausted live attempts──────> FAILING
   ^                                                                             │
   ├── the receiver accepts an event, or rejects one for good ───────────────────┤
   └── the webhook is enabled again <── DISABLED after a long outage <───────────┘

While FAILING, events are neither queued nor retried: each is skipped, and one event at a time, the
probe, is sent with growing pauses. What was missed is described by a window of event times, which
is stored before an event relies on it. So memory and database rows do not grow with the outage.
On the way back to HEALTHY, a replay of the window is due.
"""

from dataclasses import dataclass, replace
from typing import Final, Self

from app.domain.delivery import Rejected, Unreachable
from app.domain.endpoint_health import CONSECUTIVE_FAILURES_MIN
from app.domain.hours import HOUR_MS
from app.domain.model import Window
from app.domain.retry import RETRY_AFTER_S_MAX, SPREAD, RetryPolicy, is_permanent, retry_after_s
from app.domain.windows import MINUTE_MS

FAILING_REASON: Final = "the receiver is failing: a recovery replay will send the event"
"""The reason in the outcomes of the events that are skipped."""

ORDER_REASON: Final = "earlier events come first: a recovery replay will send the event"
"""The reason in the outcomes of events that are skipped to keep the order."""

PROBES_PER_EVENT: Final = 3
"""Failed probes with one event before a newer event is the probe: the receiver may answer this one
with an error and others not."""

ORDERED_FAILURES_MIN: Final = 2
"""Failures in a row after which a webhook with strict order is FAILING."""

POSTPONED_MS_MAX: Final = 24 * HOUR_MS
"""How long after its creation a recovery waits for a receiver that fails again."""

CLAIMS_ALONE_MAX: Final = 10
"""Claims after which a recovery lists the last event that it could not deliver as failed."""

_MARGIN_MS: Final = MINUTE_MS
"""How much a window exceeds the events for which it was widened: event times are not in order, and
each widening is a write."""


@dataclass(frozen=True, slots=True)
class OutageRecord:
    """A FAILING webhook in the database, for one data centre.

    `window` has the event times of all missed events up to now. `next_probe_ms` is when the next
    probe is due.
    """

    since_ms: int
    window: Window
    failed_probes: int = 0
    next_probe_ms: int = 0


class ConsecutiveFailures:
    """Retryable failures of a webhook since its receiver last processed an event.

    `earliest_ms` is the earliest event time of the events that failed, and `has_scheduled` whether
    one of them waits for a scheduled retry.
    """

    def __init__(self) -> None:
        self.count = 0
        self.earliest_ms = 0
        self.is_of_one_event = True
        self.has_scheduled = False
        self._event_key: int | None = None

    def record(self, event_key: int, event_ms: int) -> None:
        """Count a failure of an event; `event_key` tells it from others."""
        self.earliest_ms = min(self.earliest_ms, event_ms) if self.count else event_ms
        self.count += 1
        if self._event_key is None:
            self._event_key = event_key
        self.is_of_one_event = self.is_of_one_event and event_key == self._event_key


def begins_outage(
    failures: ConsecutiveFailures,
    attempts: int,
    *,
    is_exhausted: bool,
    has_scheduled_retry: bool = False,
    is_ordered: bool = False,
) -> bool:
    """Whether a webhook is FAILING after a retryable failure, the `attempts`-th of an event.

    An event whose live attempts are exhausted while others were accepted has failed for itself
    alone. So may the only event that was sent: it waits for its scheduled retry, if it has one, and
    a second event that fails shows the outage. In strict order there is none, and all events wait
    for the one that failed, so one retry has to suffice.
    """
    if failures.is_of_one_event and has_scheduled_retry:
        return False
    if failures.count >= (ORDERED_FAILURES_MIN if is_ordered else CONSECUTIVE_FAILURES_MIN):
        return True
    return is_exhausted and failures.count >= attempts


def may_postpone(age_ms: int, claims: int, *, is_alone: bool) -> bool:
    """Whether a recovery waits for its receiver, which fails again, instead of giving events up.

    `age_ms` is the time since its creation, `claims` how often workers claimed it. An event that is
    left alone may be one that the receiver never accepts.
    """
    return age_ms < POSTPONED_MS_MAX and not (is_alone and claims >= CLAIMS_ALONE_MAX)


class Outage:
    """A FAILING webhook in a live process. Times are milliseconds since 1970."""

    def __init__(
        self, policy: RetryPolicy, record: OutageRecord, *, stored: Window | None = None
    ) -> None:
        """Start with `record`; `stored` is the window in the database, None without one."""
        self._policy = policy
        self._record = record
        self._stored = stored
        self.has_missed = stored is not None
        """Whether a replay has something to send: events were skipped, or may have been by an
        earlier process, or wait for a scheduled retry."""

    @classmethod
    def begin(cls, policy: RetryPolicy, since_ms: int, earliest_ms: int) -> Self:
        """The state of a webhook that begins to fail; its first event is of `earliest_ms`."""
        return cls(policy, OutageRecord(since_ms, Window(earliest_ms, earliest_ms)))

    @classmethod
    def resume(cls, policy: RetryPolicy, record: OutageRecord) -> Self:
        """The state that another process stored."""
        return cls(policy, record, stored=record.window)

    @property
    def record(self) -> OutageRecord:
        """What to store."""
        return self._record

    @property
    def next_probe_ms(self) -> int:
        """When the next probe is due."""
        return self._record.next_probe_ms

    @property
    def failed_probes(self) -> int:
        """Failed probes so far."""
        return self._record.failed_probes

    def is_covered(self, event_ms: int, now_ms: int) -> bool:
        """Whether the stored window has an event, which may then be skipped.

        The replay's window reaches at least to its creation, so only an event time ahead of the
        clock needs a stored end.
        """
        stored = self._stored
        return stored is not None and stored.from_ms <= event_ms < max(stored.to_ms, now_ms)

    def widen(self, event_ms: int, now_ms: int) -> bool:
        """Extend the window to store by an event; whether it did."""
        window = self._record.window
        from_ms, to_ms = window.from_ms, window.to_ms
        if event_ms < from_ms:
            from_ms = event_ms - _MARGIN_MS
        if event_ms >= max(to_ms, now_ms):
            to_ms = event_ms + _MARGIN_MS
        if (from_ms, to_ms) == (window.from_ms, window.to_ms):
            return False
        self._record = replace(self._record, window=Window(from_ms, to_ms))
        return True

    def record_stored(self, window: Window) -> None:
        """The database has `window`."""
        self._stored = window

    def record_failed_probe(
        self, outcome: Rejected | Unreachable, now_ms: int, jitter: float
    ) -> None:
        """Schedule the next probe; `jitter` is in [0, 1).

        A Retry-After header lengthens the pause, up to `RETRY_AFTER_S_MAX`.
        """
        assert not is_permanent(outcome)
        count = self._record.failed_probes + 1
        pause_s = self._policy.backoff_s(count) * (1 - SPREAD + 2 * SPREAD * jitter)
        pause_s = max(pause_s, retry_after_s(outcome, RETRY_AFTER_S_MAX))
        next_ms = now_ms + round(1_000 * pause_s)
        self._record = replace(self._record, failed_probes=count, next_probe_ms=next_ms)
