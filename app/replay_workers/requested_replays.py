"""The replays that were requested in the last seconds, and how soon a worker polls for each.

Every worker hears of every request. The worker that has claimed the last replay polls at once, and
the others only if they do not hear of its claim: so a request costs the database as much with many
idle workers as with one. A worker that runs replays leaves new ones to idle workers.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from app.domain.model import OffsetRange
from app.log.replay_requests import RequestHint

FRESH_S: Final = 5.0
"""Later, a worker looks the window up itself: late events may have arrived."""

REMEMBERED_MAX: Final = 1_000

CLAIM_S: Final = 0.02
"""How long it may take until the other workers hear of a claim."""

SPREAD_S: Final = 0.04
"""The other workers poll at random times of such a span, so that most of them hear of a claim."""

PER_REPLAY_S: Final = 0.01
"""How much later a worker polls for each replay that it runs."""


class RequestedReplays:
    """The requests that `worker` has heard of. Times are seconds of any one clock."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        # No claim is known yet, as if there were no other worker.
        self._has_claimed_last = True
        self._by_id: OrderedDict[str, tuple[float, OffsetRange | None]] = OrderedDict()

    def add(self, hint: RequestHint, now_s: float) -> None:
        """Remember a request, or that a worker has claimed one."""
        if hint.claimed_by is not None:
            self._has_claimed_last = hint.claimed_by == self._worker
            self._by_id.pop(hint.id, None)
            return
        self._by_id[hint.id] = now_s, hint.offsets
        if len(self._by_id) > REMEMBERED_MAX:
            self._by_id.popitem(last=False)

    def is_open(self, replay_id: str) -> bool:
        """Whether no worker is known to have claimed a requested replay."""
        return replay_id in self._by_id

    def poll_delay_s(self, running: int, chance: float) -> float:
        """How long to wait for a claim of another worker, while this one runs `running` replays.

        `chance` is random, in [0, 1).
        """
        if running:
            return CLAIM_S + SPREAD_S * (1 + chance) + PER_REPLAY_S * running
        return 0.0 if self._has_claimed_last else CLAIM_S + SPREAD_S * chance

    def fresh_offsets(self, now_s: float) -> Mapping[str, OffsetRange]:
        """The offsets that are not too old, by the ids of their replays; forgets the others."""
        while self._by_id and now_s - next(iter(self._by_id.values()))[0] > FRESH_S:
            self._by_id.popitem(last=False)
        return {
            replay_id: offsets
            for replay_id, (_, offsets) in self._by_id.items()
            if offsets is not None
        }
