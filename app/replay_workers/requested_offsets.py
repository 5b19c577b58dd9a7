"""The offsets that the API has just looked up for new replays, so that a worker need not."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from app.domain.model import OffsetRange
from app.log.replay_requests import RequestHint

FRESH_S: Final = 5.0
"""Later, a worker looks the window up itself: late events may have arrived."""

REMEMBERED_MAX: Final = 1_000


class RequestedOffsets:
    """The offsets of requests of the last `FRESH_S`. Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[str, tuple[float, OffsetRange]] = OrderedDict()

    def add(self, request: RequestHint, now_s: float) -> None:
        """Remember the offsets of a request, if it has any."""
        if request.offsets is not None:
            self._by_id[request.id] = now_s, request.offsets
            if len(self._by_id) > REMEMBERED_MAX:
                self._by_id.popitem(last=False)

    def fresh(self, now_s: float) -> Mapping[str, OffsetRange]:
        """The offsets that are not too old, by the ids of their replays; forgets the others."""
        while self._by_id and now_s - next(iter(self._by_id.values()))[0] > FRESH_S:
            self._by_id.popitem(last=False)
        return {replay_id: offsets for replay_id, (_, offsets) in self._by_id.items()}
