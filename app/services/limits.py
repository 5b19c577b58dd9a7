"""Rate limits and concurrency limits of API keys and accounts."""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from app.config import Settings
from app.domain.accounts import ApiKey, Scope
from app.services.errors import RateLimited

WINDOW_S: Final = 60

CALLERS_MAX: Final = 10_000
"""Callers that a rate limiter tracks, at about 200 bytes each."""

CONCURRENT_REQUESTS_MAX: Final = 50
"""Concurrent requests of one developer's key. Each holds one of the process's thousand connections;
twenty may be progress streams."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The used part of `limit` requests; the count restarts in `reset_s` seconds."""

    limit: int
    used: int
    reset_s: int

    @property
    def remaining(self) -> int:
        """How many more requests are allowed in this window."""
        return max(0, self.limit - self.used)

    @property
    def is_exceeded(self) -> bool:
        """Whether the last counted request was above the limit."""
        return self.used > self.limit

    def refusal(self) -> RateLimited:
        """The error for a request above the limit."""
        detail = f"limit: {self.limit} requests per minute; retry in {self.reset_s} s"
        return RateLimited(detail, retry_after_s=self.reset_s)


@dataclass(slots=True)
class _Window:
    end_s: float
    used: int = 0


class QuotaCounter:
    """Counts requests per caller in windows of a minute, which start at a caller's first request.

    Above `callers_max` the oldest window is dropped, and its caller has a full quota again. Times
    are of any monotonic clock.
    """

    def __init__(self, callers_max: int = CALLERS_MAX) -> None:
        self._callers_max = callers_max
        # In the order of their starts, which is the order of their ends.
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def count_request(self, caller: str, limit: int, now_s: float) -> Quota:
        """Count a request of `caller`, also one above `limit`."""
        window = self._open_window(caller, now_s)
        window.used += 1
        return Quota(limit, window.used, _whole_seconds(window.end_s - now_s))

    def quota_of(self, caller: str, limit: int, now_s: float) -> Quota:
        """The quota of `caller`; counts nothing."""
        window = self._windows.get(caller)
        if window is None or window.end_s <= now_s:
            return Quota(limit, 0, 0)
        return Quota(limit, window.used, _whole_seconds(window.end_s - now_s))

    def _open_window(self, caller: str, now_s: float) -> _Window:
        window = self._windows.get(caller)
        if window is not None and window.end_s > now_s:
            return window
        self._windows.pop(caller, None)
        if len(self._windows) >= self._callers_max:
            self._windows.popitem(last=False)
        self._windows[caller] = opened = _Window(now_s + WINDOW_S)
        return opened


def _whole_seconds(duration_s: float) -> int:
    # Rounded up: a client that waits this long must not retry too early.
    return math.ceil(duration_s)


class KeyLimits:
    """Limits the requests of each API key, per minute and at the same time."""

    def __init__(self, settings: Settings) -> None:
        self._rates = QuotaCounter()
        self._concurrent: Counter[str] = Counter()
        self._per_minute = {
            Scope.DEVELOPER: settings.developer_requests_per_minute,
            Scope.OPERATOR: settings.operator_requests_per_minute,
        }

    def count_request(self, key: ApiKey) -> Quota:
        """Count a request of `key`, also one above its limit."""
        return self._rates.count_request(key.id, self._per_minute[key.scope], time.monotonic())

    @contextmanager
    def concurrent_request(self, key: ApiKey) -> Iterator[None]:
        """Count a request as concurrent until the block ends.

        Raises:
            RateLimited: a developer's key has `CONCURRENT_REQUESTS_MAX` requests already.
        """
        if key.scope is Scope.DEVELOPER and self._concurrent[key.id] >= CONCURRENT_REQUESTS_MAX:
            detail = f"limit: {CONCURRENT_REQUESTS_MAX} concurrent requests"
            raise RateLimited(detail, retry_after_s=1)
        self._concurrent[key.id] += 1
        try:
            yield
        finally:
            self._concurrent[key.id] -= 1
            if not self._concurrent[key.id]:
                del self._concurrent[key.id]


class AccountSlots:
    """Limits concurrent operations per developer's account; operators are not limited.

    For one event loop, so that one account cannot block the others. `operations` names them in the
    error.
    """

    def __init__(self, per_account_max: int, operations: str) -> None:
        self._per_account_max = per_account_max
        self._operations = operations
        self._used: Counter[str] = Counter()

    @contextmanager
    def slot(self, caller: ApiKey) -> Iterator[None]:
        """Hold a slot of the caller's account until the block ends.

        Raises:
            RateLimited: the account uses all of its slots.
        """
        account_id = caller.account.id
        if caller.account_filter is not None and self._used[account_id] >= self._per_account_max:
            detail = f"limit: {self._per_account_max} concurrent {self._operations} per account"
            raise RateLimited(detail, retry_after_s=1)
        self._used[account_id] += 1
        try:
            yield
        finally:
            self._used[account_id] -= 1
            self._used += Counter()  # drops accounts without slots
