"""An event on its way to a receiver, and the partition that it was read from."""

from dataclasses import dataclass, field

from app.domain.partition_progress import PartitionProgress
from app.log.event import LoggedEvent
from app.log.group_position import Committed


@dataclass(eq=False, slots=True)
class Share:
    """A partition of `delivery_log` while this process has it.

    `posting` is the number of its events whose requests are under way; `crowded_by` are the ids
    of the webhooks that it is held for.
    """

    partition: int
    progress: PartitionProgress
    committed: Committed
    is_gone: bool = False
    posting: int = 0
    crowded_by: set[str] = field(default_factory=set)

    def reached(self) -> Committed:
        """What may be stored: where to read on, with a note of what is open below."""
        commit = self.progress.commit()
        return Committed(commit.position, commit.metadata)

    def is_ours(self) -> bool:
        """Whether its events may still be sent by this process."""
        return not self.is_gone


@dataclass(eq=False, slots=True)
class Parcel:
    """An event to deliver. `copies` are further records of the same event, settled with it.

    `took_ms` is how long its last attempt took.
    """

    share: Share
    webhook_id: str
    event_id: str
    digest: int
    event: LoggedEvent
    read_s: float
    attempts: int = 0
    took_ms: float | None = None
    copies: list[tuple[Share, LoggedEvent]] = field(default_factory=list)
