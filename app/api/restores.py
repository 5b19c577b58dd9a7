"""What a replay of the archive needs before it can be delivered."""

from app.api.doors import Doors, now_ms
from app.api.problems import WINDOW_REFUSED, Problem
from app.domain.model import AwaitedRestore, NewReplay
from app.domain.restores import all_arrived_by_ms
from app.log.topics import DELIVERY_ARCHIVE


def what_to_restore(doors: Doors, new: NewReplay) -> AwaitedRestore:
    """Where the records of a window were in this data centre's log, whether they still are or not.

    Raises:
        LogUnavailable: the log does not answer.
    """
    settings = doors.settings
    arrived_by_ms = all_arrived_by_ms(
        new.window,
        now_ms(),
        lateness_ms=settings.lateness_ms,
        retention_ms=settings.retention_ms,
    )
    partition, below = doors.history.below(new.webhook_id, arrived_by_ms)
    late_end = doors.store.late_end_offset(partition, new.window, origin=settings.origin)
    return AwaitedRestore(partition, max(below, late_end or 0))


def check_still_restored(doors: Doors, replay_id: str) -> None:
    """Return when what was restored for a replay that is over is still there.

    Raises:
        Problem: it was deleted.
        LogUnavailable: the log does not answer.
    """
    offsets = doors.store.replay(replay_id).offsets
    if offsets is None:
        return  # it gave nothing up either, as the store will say
    low = doors.history.bounds(DELIVERY_ARCHIVE, offsets.partition).low
    if low > offsets.start:
        detail = (
            f"what was restored for replay {replay_id!r} is deleted a day after its end: ask for "
            "its window again"
        )
        raise Problem(WINDOW_REFUSED, detail)
