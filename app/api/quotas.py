"""How often somebody may do something in a minute, counted without a clock of its own."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

WINDOW_S: Final = 60


@dataclass(frozen=True, slots=True)
class Standing:
    """What is left of a quota of `limit` for `reset_s` more seconds, after which all is back."""

    limit: int
    used: int
    reset_s: int

    @property
    def remaining(self) -> int:
        """How many more are allowed in this window."""
        return max(0, self.limit - self.used)

    @property
    def is_exceeded(self) -> bool:
        """Whether the one just taken was one too many."""
        return self.used > self.limit

    def headers(self) -> dict[str, str]:
        """The three fields that clients know, and the policy behind them.

        Source: draft-ietf-httpapi-ratelimit-headers, version 03 section 3 for the fields and
        version 10 section 3 for the policy.
        """
        return {
            "ratelimit-limit": str(self.limit),
            "ratelimit-remaining": str(self.remaining),
            "ratelimit-reset": str(self.reset_s),
            "ratelimit-policy": f'"requests";q={self.limit};w={WINDOW_S}',
        }


@dataclass(slots=True)
class _Window:
    end_s: float
    used: int = 0


class Quotas:
    """The windows of many callers, each a minute long from its first request on.

    At most `callers_max` are kept: above that the one that opened first is forgotten, and its
    caller has a full quota again. Times may be of any clock that does not go back.
    """

    def __init__(self, callers_max: int) -> None:
        self._callers_max = callers_max
        # In the order in which they opened, which is the order in which they end.
        self._windows: OrderedDict[str, _Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def take(self, caller: str, limit: int, now_s: float) -> Standing:
        """Count one request of `caller`, also one above `limit`."""
        window = self._open(caller, now_s)
        window.used += 1
        return Standing(limit, window.used, _whole_seconds(window.end_s - now_s))

    def standing(self, caller: str, limit: int, now_s: float) -> Standing:
        """Where `caller` stands, with nothing counted."""
        window = self._windows.get(caller)
        if window is None or window.end_s <= now_s:
            return Standing(limit, 0, 0)
        return Standing(limit, window.used, _whole_seconds(window.end_s - now_s))

    def _open(self, caller: str, now_s: float) -> _Window:
        window = self._windows.get(caller)
        if window is not None and window.end_s > now_s:
            return window
        self._windows.pop(caller, None)
        if len(self._windows) >= self._callers_max:
            self._windows.popitem(last=False)
        self._windows[caller] = opened = _Window(now_s + WINDOW_S)
        return opened


def _whole_seconds(duration_s: float) -> int:
    # Up, so that who waits as long as told does not come a moment too early.
    return math.ceil(duration_s)
