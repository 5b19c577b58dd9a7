"""How long a look into the log may take altogether."""

import time
from typing import Final

_LEAST_S: Final = 0.05
"""The client takes no timeout of nothing; what is over time waits no longer than this."""


class Deadline:
    """A moment that is `seconds` away when it is made."""

    def __init__(self, seconds: float) -> None:
        self._end_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then; never quite none."""
        return max(_LEAST_S, self._end_s - time.monotonic())

    @property
    def asking_s(self) -> float:
        """How long one question may take: half of what is left.

        Of brokers that hang the client tells only once it is over, and then there has to be time
        for what others told, and for the next question.
        """
        return self.left_s / 2

    @property
    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._end_s
