"""A live delivery, and the partition that its event was read from."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.domain.delivery import Rejected, Unreachable
from app.domain.handovers import LiveHandover
from app.domain.live_backlog import REASON_CHARS_MAX, LiveBacklog
from app.domain.partition_progress import PartitionProgress
from app.domain.recovery import OutageRecord
from app.log.event import LoggedEvent
from app.log.group_position import Committed


@dataclass(eq=False, slots=True)
class DeliveryPartition:
    """A partition of `delivery_log` while it is assigned to this process.

    `in_flight` counts its deliveries whose requests are in flight. `paused_for` holds the ids of
    the webhooks for which it is not read. `recoveries` has the failing webhooks at its assignment,
    until the first event of each is read. `scheduled` are the offsets of its unsettled events for
    which the process that had it before stored a scheduled retry.
    """

    partition: int
    progress: PartitionProgress
    committed: Committed
    is_revoked: bool = False
    in_flight: int = 0
    paused_for: set[str] = field(default_factory=set)
    recoveries: dict[str, OutageRecord] = field(default_factory=dict)
    scheduled: frozenset[int] = frozenset()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was read is settled."""
        return not self.progress.unsettled_count

    def position(self) -> Committed:
        """The position to commit, with the unsettled offsets below it."""
        commit = self.progress.commit()
        return Committed(commit.position, commit.metadata)

    def is_assigned(self) -> bool:
        """Whether this process may send its events."""
        return not self.is_revoked


@dataclass(eq=False, slots=True)
class LiveDelivery:
    """An event for one webhook. `copies` are duplicates that are settled with it.

    `size_bytes` is the size of the body, `took_ms` the duration of the last attempt, `has_failed`
    whether this process recorded a failed one, and `next_attempt_ms` when a retry is due, for which
    `timer` waits. `handover` is that of the replay which sends the event instead. A parked delivery
    waits for the recovery of its webhook. Of one that `is_scheduled`, a worker makes the further
    attempts.
    """

    partition: DeliveryPartition
    webhook_id: str
    event_id: str
    digest: int
    event: LoggedEvent
    read_s: float
    size_bytes: int
    attempts: int = 0
    has_failed: bool = False
    took_ms: float | None = None
    is_in_flight: bool = False
    next_attempt_ms: int = 0
    handover: LiveHandover | None = None
    copies: list[tuple[DeliveryPartition, LoggedEvent]] = field(default_factory=list)
    is_parked: bool = False
    is_scheduled: bool = False
    timer: asyncio.TimerHandle | None = None

    def start_timer(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay_s`, instead of the previous one."""
        self.cancel_timer()
        self.timer = asyncio.get_running_loop().call_later(delay_s, action)

    def cancel_timer(self) -> None:
        """Do not call the action of the timer."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def begin_request(self) -> None:
        """Count it as in flight: it must not be handed over or taken by another process."""
        self.partition.in_flight += 1
        self.is_in_flight = True

    def end_request(self) -> None:
        """Count it as in flight no more."""
        self.partition.in_flight -= 1
        self.is_in_flight = False

    def park(self) -> None:
        """Wait for the recovery of the webhook instead of a retry."""
        self.cancel_timer()
        self.is_parked = True

    def belongs_to(self, handover: LiveHandover) -> bool:
        """Whether a replay of its webhook has taken it over."""
        event = self.event
        return handover.includes(
            self.partition.partition, event.offset, event.timestamp_ms, event.event_type
        )


def backlog_of(
    deliveries: Iterable[LiveDelivery],
    failure: Rejected | Unreachable,
    failed_ms: int,
    is_recovering: bool,
) -> LiveBacklog | None:
    """The backlog of one webhook after its last `failure`; None if no delivery has failed."""
    unsettled = tuple(deliveries)
    retrying = [each for each in unsettled if each.attempts]
    if not retrying:
        return None
    return LiveBacklog(
        waiting=len(unsettled),
        retrying=len(retrying),
        is_recovering=is_recovering,
        status=failure.status if isinstance(failure, Rejected) else None,
        reason=failure.reason[:REASON_CHARS_MAX],
        failed_ms=failed_ms,
        next_attempt_ms=min(each.next_attempt_ms for each in retrying),
    )
