"""How long a replay is postponed while the log does not respond."""

from typing import Final

FIRST_S: Final = 1.0
LONGEST_S: Final = 30.0
_REPLAYS_KEPT: Final = 10_000


class Postponements:
    """Doubles the pause of a replay with each consecutive postponement, up to half a minute."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}

    def next_pause_s(self, replay_id: str) -> float:
        """The pause of this postponement."""
        pause_s = min(2 * self._last_s.pop(replay_id, FIRST_S / 2), LONGEST_S)
        if len(self._last_s) >= _REPLAYS_KEPT:
            # The one postponed longest ago has ended, or another worker runs it.
            del self._last_s[next(iter(self._last_s))]
        self._last_s[replay_id] = pause_s
        return pause_s

    def forget(self, replay_id: str) -> None:
        """Reset the pause of a replay that continues."""
        self._last_s.pop(replay_id, None)
