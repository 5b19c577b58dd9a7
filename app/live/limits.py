"""The rate limit and the concurrency of live delivery to one webhook, from its options."""

import asyncio
import time
from collections.abc import Callable

from app.delivery.attempt import Attempt, record_attempt
from app.domain.concurrency import ConcurrencyLimit
from app.domain.endpoint_options import EndpointOptions, Ordering
from app.domain.rates import RateLimiter


class LiveLimits:
    """The limits of one webhook. Setting `options` applies them. For one event loop.

    `limit_in_flight` is called when the number of requests that may be in flight changes, and
    `start_sender` when a delivery may start that had to wait. `is_crowded` says whether the process
    has too many requests in flight.
    """

    def __init__(
        self,
        in_flight_setting: int,
        limit_in_flight: Callable[[int], None],
        start_sender: Callable[[], None],
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._in_flight_setting = in_flight_setting
        self._limit_in_flight = limit_in_flight
        self._concurrency = ConcurrencyLimit(in_flight_setting, is_crowded)
        self._in_flight = self._concurrency.limit
        limit_in_flight(self._in_flight)
        self._start_sender = start_sender
        self._options: EndpointOptions | None = None
        self._per_second: int | None = None
        self._rate_limiter: RateLimiter | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def options(self) -> EndpointOptions | None:
        """The options that are applied."""
        return self._options

    @options.setter
    def options(self, options: EndpointOptions | None) -> None:
        self._options = options
        per_second = None if options is None else options.max_events_per_second
        if per_second != self._per_second:
            self._per_second = per_second
            self._rate_limiter = None
            if per_second is not None:
                self._rate_limiter = RateLimiter(per_second, time.monotonic())
        self._concurrency.change_max(self.in_flight_max)
        self._apply_concurrency()

    def record_attempt(self, attempt: Attempt, in_flight: int) -> None:
        """Record an attempt of the webhook, which had `in_flight` requests."""
        record_attempt(self._concurrency, attempt, in_flight)
        self._apply_concurrency()

    def _apply_concurrency(self) -> None:
        limit = self._concurrency.limit
        if limit != self._in_flight:
            self._in_flight = limit
            self._limit_in_flight(limit)

    @property
    def in_flight_max(self) -> int:
        """How many requests may be in flight; never more than the operator's setting."""
        if self._options is None:
            return self._in_flight_setting
        if self._options.ordering is Ordering.STRICT:
            return 1
        wanted = self._options.max_in_flight
        return min(wanted or self._in_flight_setting, self._in_flight_setting)

    def may_start(self, now_s: float, ready_count: int) -> bool:
        """Whether one of `ready_count` deliveries may start now, which then counts.

        If another one has to wait, `start_sender` is called when it may start.
        """
        limiter = self._rate_limiter
        if limiter is None:
            return True
        wait_s = limiter.wait_s(now_s)
        if wait_s <= 0:
            limiter.reserve(1, now_s)
            if ready_count > 1:
                self._start_later(limiter.wait_s(now_s))
            return True
        self._start_later(wait_s)
        return False

    def _start_later(self, wait_s: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._start)

    def _start(self) -> None:
        self._timer = None
        self._start_sender()
