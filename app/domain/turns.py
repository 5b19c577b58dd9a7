"""Which replays of a worker take a slot, and which one gives way to a waiting account.

A slot stands for processor time. A replay that waits most of its time, for its rate limit or for a
receiver that is slow or down, takes none. Times are seconds of any one clock.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 1.0
"""The span over which the activity of a replay is measured."""

REQUESTS_PER_S_MIN: Final = 100
"""A replay with fewer requests waits most of its time: they take 3 % of a processor."""

SHORT_TURN_S: Final = 2.0
"""How long a replay may run while an account that runs fewer waits."""

LONG_TURN_S: Final = 30.0
"""How long a replay may run while an account that runs as many waits."""

RETRYING_TURN_S: Final = 300.0
"""How long a replay may run that has events in retry: giving way, it would repeat what was
delivered since, and begin its retries again."""

TURN_PER_START: Final = 4
"""A turn is at least this many times as long as it took to begin: a resumed replay reads what lies
below its checkpoint first, which may take seconds."""

SHARE_GAP: Final = 2
"""An account with so many more replays on a worker than another runs more than its share."""


class ReplayActivity:
    """What a replay does on a worker: requests, reading of the log, and its turn."""

    def __init__(self, now_s: float) -> None:
        """Start with a replay that was claimed at `now_s`."""
        self._claimed_s = now_s
        self._began_s: float | None = None
        self._window_s = now_s
        self._reading_since_s: float | None = None
        self._reading_s = 0.0
        self._requests = 0
        self._is_waiting = False

    def begin_turn(self, now_s: float) -> None:
        """Record that the replay delivers; further calls change nothing."""
        if self._began_s is None:
            self._began_s = now_s

    def count_request(self) -> None:
        """Count a request."""
        self._requests += 1

    def start_reading(self, now_s: float) -> None:
        """Record that the log is read from now on."""
        self._reading_since_s = now_s

    def stop_reading(self, now_s: float) -> None:
        """Record that the log was read until now."""
        if self._reading_since_s is not None:
            self._reading_s += max(0.0, now_s - max(self._reading_since_s, self._window_s))
            self._reading_since_s = None

    def is_waiting(self, now_s: float) -> bool:
        """Whether it waited most of the last `WINDOW_S`; False until it has run that long."""
        elapsed_s = now_s - self._window_s
        if elapsed_s >= WINDOW_S:
            if self._reading_since_s is not None:
                self.stop_reading(now_s)
                self.start_reading(now_s)
            is_slow = self._requests < REQUESTS_PER_S_MIN * elapsed_s
            has_begun = self._began_s is not None
            self._is_waiting = has_begun and is_slow and self._reading_s < elapsed_s / 2
            self._window_s, self._requests, self._reading_s = now_s, 0, 0.0
        return self._is_waiting

    def turn(self, now_s: float) -> "Turn":
        """How long it has delivered, and at least delivers before it gives way."""
        if self._began_s is None:
            return Turn(0.0, LONG_TURN_S)
        start_s = self._began_s - self._claimed_s
        return Turn(now_s - self._began_s, TURN_PER_START * start_s)


@dataclass(frozen=True, slots=True)
class Turn:
    """How long a replay has run, and the least time that it runs before it gives way."""

    seconds: float
    seconds_min: float


@dataclass(frozen=True, slots=True)
class RunningReplay:
    """A replay of a worker."""

    account_id: str
    turn: Turn
    is_waiting: bool = False
    is_retrying: bool = False

    def may_give_way(self, turn_s: float) -> bool:
        """Whether it has run for a turn of `turn_s`."""
        least_s = RETRYING_TURN_S if self.is_retrying else turn_s
        return self.turn.seconds >= max(least_s, self.turn.seconds_min)


@dataclass(frozen=True, slots=True)
class Slots:
    """How many replays a worker runs at a time; `waiting_max` more if they wait most of it."""

    running_max: int
    waiting_max: int

    def are_taken(self, running: Sequence[RunningReplay]) -> bool:
        """Whether the worker can claim no further replay."""
        waiting = sum(each.is_waiting for each in running)
        return len(running) - min(waiting, self.waiting_max) >= self.running_max

    def choose_to_give_way(self, running: Sequence[RunningReplay], account_id: str) -> int | None:
        """The index of the replay that gives way to one of `account_id`; None if none does yet.

        It is the one that has run longest, of the account that runs most. While the waiting account
        runs none here, or clearly fewer, a short turn suffices.
        """
        shares = Counter(each.account_id for each in running)
        is_crowded = sum(each.is_waiting for each in running) > self.waiting_max

        def may_give_way(each: RunningReplay) -> bool:
            # One that takes no slot makes no room, unless too many of them wait.
            if each.is_waiting and not is_crowded:
                return False
            mine, theirs = shares[each.account_id], shares[account_id]
            is_short = mine > theirs and (not theirs or mine - theirs >= SHARE_GAP)
            return each.may_give_way(SHORT_TURN_S if is_short else LONG_TURN_S)

        candidates = [index for index, each in enumerate(running) if may_give_way(each)]
        return max(
            candidates,
            key=lambda index: (shares[running[index].account_id], running[index].turn.seconds),
            default=None,
        )
