"""How a receiver fares, as its answers tell, and what that means for the events still to come.

UP ──five failures in a row, or a Retry-After──> DOWN ──as many as the policy allows──> WRITTEN_OFF
 ^                                                 │                                         │
 └───────────────────── the receiver takes an event, or answers for good ────────────────────┘

Without this, each of 10^5 events would wait out its own retries against a receiver that is
down, and the job would take weeks to say so. While it is DOWN one request at a time asks how it
is, as often as the retry policy would for one event, and the others wait without spending an
attempt. Once it is WRITTEN_OFF every request gets a single attempt and its events are listed as
failed; after `GIVEN_UP_IN_A_ROW_MAX` of them the job is over, and its error says where it stood.
"""

from enum import Enum
from typing import Final

from app.domain.delivery import Refused, Unreachable
from app.domain.retry import GiveUp, RetryPolicy, is_final

FAILURES_TO_BE_DOWN: Final = 5
"""Few enough that an outage costs little, more than bad luck brings among healthy answers."""

GIVEN_UP_IN_A_ROW_MAX: Final = 1_000
"""A longer list of failures says nothing that this one does not."""

REFUSALS_IN_A_ROW_MIN: Final = 10
"""A single request may bring a thousand events; it alone does not end a replay."""


class Health(Enum):
    """What is to be expected of the receiver."""

    UP = "up"
    DOWN = "down"
    WRITTEN_OFF = "written off"


class ReceiverHealth:
    """Learns from every outcome how the receiver fares; times are seconds of any one clock."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures_in_a_row = 0
        self._probes = 0
        self._given_up_in_a_row = 0
        self._refusals_in_a_row = 0
        self._next_probe_s = 0.0
        self.state = Health.UP

    @property
    def is_down(self) -> bool:
        """Whether it is to be asked how it is before anything else is sent."""
        return self.state is Health.DOWN

    @property
    def is_beyond_hope(self) -> bool:
        """Whether so many events in a row were given up that there is no point in going on."""
        return (
            self._given_up_in_a_row >= GIVEN_UP_IN_A_ROW_MAX
            and self._refusals_in_a_row >= REFUSALS_IN_A_ROW_MIN
        )

    def probe_wait_s(self, now_s: float) -> float:
        """How long to wait before the next request, while the receiver is down."""
        return max(0.0, self._next_probe_s - now_s)

    def took_one(self) -> None:
        """The receiver took a request: all is well."""
        self._answered()
        self._given_up_in_a_row = 0
        self._refusals_in_a_row = 0

    def gave_up(self, events: int) -> None:
        """A request was given up: its events are listed as failed."""
        self._given_up_in_a_row += events
        self._refusals_in_a_row += 1

    def failed(
        self, outcome: Refused | Unreachable, started_s: float, now_s: float, jitter: float
    ) -> None:
        """An attempt that began at `started_s` failed; `jitter` lies in [0, 1)."""
        if isinstance(outcome, Refused) and is_final(outcome):
            self._answered()  # it is well enough to judge the request
            return
        self._failures_in_a_row += 1
        if self.state is Health.UP:
            if self._is_bad_news(outcome):
                self._probe_failed(outcome, now_s, jitter)
        # What was under way when it went down says nothing new when it fails as well.
        elif started_s >= self._next_probe_s:
            self._probe_failed(outcome, now_s, jitter)

    def _is_bad_news(self, outcome: Refused | Unreachable) -> bool:
        asks_for_quiet = isinstance(outcome, Refused) and outcome.retry_after_s is not None
        return asks_for_quiet or self._failures_in_a_row >= FAILURES_TO_BE_DOWN

    def _probe_failed(self, outcome: Refused | Unreachable, now_s: float, jitter: float) -> None:
        self._probes += 1
        verdict = self._policy.next(outcome, self._probes, jitter)
        if isinstance(verdict, GiveUp):
            self.state = Health.WRITTEN_OFF
        else:
            self.state = Health.DOWN
            self._next_probe_s = now_s + verdict.seconds

    def _answered(self) -> None:
        self.state = Health.UP
        self._failures_in_a_row = 0
        self._probes = 0
