"""How many requests to one endpoint are in flight: few at first, more while it answers as fast.

A receiver that answers in 200 ms needs hundreds of concurrent requests to get as many events per
second as one that answers at once with sixteen, and another one has room for ten. The limit doubles
with each round trip until responses take longer, then it grows by a tenth. Responses that take much
longer than at fewer requests mean that requests queue at the receiver: the limit shrinks in
proportion. A response that asks for less, or none at all, halves it at once.

Sources: TCP slow start and congestion avoidance (RFC 5681, section 3.1); TCP Vegas (Brakmo,
Peterson 1995), which compares round-trip times with the shortest one.
"""

import math
from collections.abc import Callable
from typing import Final

from app.domain.delivery import Rejected, Unreachable

START: Final = 4
"""Requests in flight at first, and the least that slow responses alone lead to."""

USEFUL_MIN: Final = 16
"""So many requests are in flight however fast the endpoint is, if it accepts them."""

REQUEST_S: Final = 50e-6
EVENT_S: Final = 4e-6
"""Less processor time than one process spends on a request and on each of its events. So it sends
no more requests per second, and a limit above that rate times the latency would be of no use."""

GROWTH: Final = 10
"""After the start the limit grows by one in so many, per round trip."""

SLOWER: Final = 1.5
"""Responses queue if they take so many times as long as at fewer requests, and `JITTER_S` more."""

JITTER_S: Final = 0.05
"""A busy process or machine delays responses by as much, whatever their number."""

SHRINK_MIN: Final = 0.5
"""What slow responses leave of the limit, at least, per round trip."""

ROUNDS_AT_FLOOR: Final = 3
"""Slow round trips at `START` until the latency is taken for the endpoint's own: the requests of a
higher limit may still be queued."""

TOO_MANY: Final = frozenset({429, 503})
"""Statuses that ask for fewer requests (RFC 6585, section 4; RFC 9110, section 15.6.4)."""


def is_overload(outcome: Rejected | Unreachable) -> bool:
    """Whether a failed attempt asks for fewer concurrent requests."""
    return isinstance(outcome, Unreachable) or outcome.status in TOO_MANY


class ConcurrencyLimit:
    """The limit of one endpoint, from 1 to `limit_max`. Times are seconds of any one clock.

    A request has up to `request_events` events. While `is_crowded` returns True, because the
    process has too many requests in flight, the limit is at most `START`.
    """

    def __init__(
        self,
        limit_max: int,
        is_crowded: Callable[[], bool] = lambda: False,
        *,
        request_events: int = 1,
    ) -> None:
        self._limit_max = limit_max
        self._requests_per_s_max = 1 / (REQUEST_S + EVENT_S * request_events)
        self._is_crowded = is_crowded
        self._limit = min(START, limit_max)
        self._start_below: float = math.inf
        """Below it, the limit doubles per round trip."""
        self._latency_s = math.inf
        """The shortest mean latency of a round."""
        self._halved_s = -math.inf
        self._rounds_at_floor = 0
        self._round_s = -math.inf
        self._round_responses = self._limit
        self._responses = 0
        self._total_s = 0.0
        self._is_used = False

    @property
    def limit(self) -> int:
        """The number of requests that may be in flight."""
        return min(self._limit, START) if self._is_crowded() else self._limit

    def limit_beside(self, waiting: int) -> int:
        """The number of requests, in flight or waiting for a retry, when `waiting` of them wait."""
        return min(self.limit + waiting, self._limit_max)

    def change_max(self, limit_max: int) -> None:
        """Set another upper bound."""
        self._limit_max = limit_max
        self._limit = min(self._limit, limit_max)

    def record_response(self, started_s: float, now_s: float, in_flight: int) -> None:
        """Record a response to a request of `started_s`, while `in_flight` were in flight."""
        # More requests would not be used, as with a rate limit.
        is_used = 2 * in_flight > self._limit
        if is_used and self._limit < self._start_below and now_s - started_s <= self._allowed_s:
            self._raise_limit(1)
        if started_s < self._round_s:
            return
        self._is_used = self._is_used or is_used
        self._responses += 1
        self._total_s += now_s - started_s
        if self._responses >= self._round_responses:
            self._end_round(now_s)

    def record_overload(self, started_s: float, now_s: float, *, is_answered: bool) -> None:
        """Record a failure that asks for less, of a request that started at `started_s`.

        Without a response (`is_answered`), the endpoint may be as fast as before once it is back.
        """
        # Requests that were in flight when the limit was halved fail for the same reason.
        if started_s < self._halved_s:
            return
        self._halved_s = now_s
        half = max(1, self._limit // 2)
        if is_answered or self._limit > self._start_below or self._start_below == math.inf:
            self._start_below = half
        self._limit = half
        self._begin_round(now_s)

    def _begin_round(self, now_s: float) -> None:
        """Measure requests that start from now on: earlier ones were sent at another limit."""
        self._round_s = now_s
        self._round_responses = self._limit
        self._responses = 0
        self._total_s = 0.0
        self._is_used = False

    def _end_round(self, now_s: float) -> None:
        mean_s = self._total_s / self._responses
        if mean_s <= self._allowed_s:
            self._rounds_at_floor = 0
            self._latency_s = min(self._latency_s, mean_s)
            if self._is_used and self._limit >= self._start_below:
                self._raise_limit(max(1, self._limit // GROWTH))
        elif self._limit > START:
            share = max(SHRINK_MIN, self._allowed_s / mean_s)
            self._start_below = self._limit = max(START, int(self._limit * share))
        else:
            self._rounds_at_floor += 1
            if self._rounds_at_floor >= ROUNDS_AT_FLOOR:
                # It is the endpoint that is slower than before.
                self._latency_s = mean_s
                self._start_below = math.inf
        self._begin_round(now_s)

    @property
    def _allowed_s(self) -> float:
        return SLOWER * self._latency_s + JITTER_S

    def _raise_limit(self, more: int) -> None:
        self._limit = max(self._limit, min(self._limit + more, self._useful_max()))

    def _useful_max(self) -> int:
        if self._latency_s == math.inf:
            return min(self._limit_max, USEFUL_MIN)
        useful = max(USEFUL_MIN, int(self._requests_per_s_max * self._latency_s))
        return min(self._limit_max, useful)
