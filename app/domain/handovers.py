"""Handovers: events that a replay takes over from the live path, which then does not send them."""

from dataclasses import dataclass, field
from typing import Final

from app.domain.hours import HOUR_MS
from app.domain.model import OffsetRange, Window
from app.domain.type_filter import TypeFilter

LIVE_AGE_MS_MAX: Final = 24 * HOUR_MS
"""An event that is older when it is read is not delivered live; a replay can send it."""

KEPT_MS: Final = LIVE_AGE_MS_MAX + HOUR_MS
"""How long after its window a handover is kept: as long as the live path may send its events, and
an hour for differences of clocks."""

HANDS_OVER: Final = "handsOver"
"""The detail of a live process, see `Process`, that acknowledges handovers."""


@dataclass(frozen=True, slots=True)
class LiveHandover:
    """The events that a replay sends instead of the live path.

    `offsets` are those of `delivery_log`. `requested_ms` is the creation of the replay.
    """

    replay_id: str
    webhook_id: str
    offsets: OffsetRange
    window: Window
    event_types: tuple[str, ...]
    requested_ms: int
    is_acknowledged: bool = False
    _types: TypeFilter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_types", TypeFilter(self.event_types))

    def includes(self, partition: int, offset: int, timestamp_ms: int, event_type: str) -> bool:
        """Whether an event of the webhook belongs to the handover."""
        return (
            partition == self.offsets.partition
            and self.offsets.start <= offset < self.offsets.end
            and self.window.from_ms <= timestamp_ms < self.window.to_ms
            and self._types.matches(event_type)
        )

    @property
    def reason(self) -> str:
        """The reason in the outcomes of its events."""
        return f"left to the replay {self.replay_id}"
