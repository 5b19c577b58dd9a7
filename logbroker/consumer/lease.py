"""How long a consumer may trust that its ZooKeeper session lives: pure, time is an argument."""

import math
from typing import Final

SESSION_SHARE: Final = 1 / 2
"""The part of the session's timeout that a proof of life is good for.

The leader may have heard of the session last when the proof before this one came, and from a
follower half a tick late: a renewal and, as no session is granted less than two ticks, a quarter
of the timeout. As much again is left for machines that are slow.
"""

RENEWAL_SHARE: Final = 1 / 12
"""The part of the session's timeout between two proofs."""


class SessionLease:
    """Until when nobody else can own what one session claimed.

    It is counted from before a proof was asked for, while the ensemble begins to count when it
    has the question; so this end is never the later one, whatever stops the process in between.
    A connection that breaks suspends it until the next proof: a session that ended early shows
    in no other way. Safe on any threads: each step is one assignment.
    """

    def __init__(self, session_id: int, timeout_s: float, sent_s: float) -> None:
        """Begin with a proof that was asked for at `sent_s`; `timeout_s` is the ensemble's."""
        self.session_id = session_id
        self._length_s = timeout_s * SESSION_SHARE
        self._connection = 0
        self._proof = (self._connection, sent_s + self._length_s)

    @property
    def connection(self) -> int:
        """Counts the connections; a proof is good only for the one it came over."""
        return self._connection

    def holds(self, now_s: float) -> bool:
        """Whether what was claimed is certainly still ours at `now_s`."""
        connection, end_s = self._proof
        return now_s < end_s and connection == self._connection

    def renew(self, sent_s: float, connection: int) -> None:
        """Note a proof that was asked for at `sent_s`, when `connection` was read."""
        self._proof = (connection, sent_s + self._length_s)

    def suspend(self) -> None:
        """Hold no more until a proof comes over the next connection."""
        self._connection += 1

    def end(self) -> None:
        """Hold never again."""
        self._length_s = -math.inf
        self.suspend()
