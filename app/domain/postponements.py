"""How long a replay waits for a log that does not answer."""

from typing import Final

FIRST_S: Final = 1.0
LONGEST_S: Final = 30.0
_REPLAYS_KEPT: Final = 10_000


class Postponements:
    """Doubles the pause of a replay each time it is put off in a row, up to half a minute."""

    def __init__(self) -> None:
        self._last_s: dict[str, float] = {}

    def pause_s(self, replay_id: str) -> float:
        """How long to put the replay off this time."""
        pause_s = min(2 * self._last_s.pop(replay_id, FIRST_S / 2), LONGEST_S)
        if len(self._last_s) >= _REPLAYS_KEPT:
            # The one put off longest ago: it is over, or in other hands.
            del self._last_s[next(iter(self._last_s))]
        self._last_s[replay_id] = pause_s
        return pause_s

    def forget(self, replay_id: str) -> None:
        """The replay goes on; the next pause is a short one again."""
        self._last_s.pop(replay_id, None)
