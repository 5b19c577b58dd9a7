"""Whether anything in the database waits for a worker, now or at a later time."""

from functools import cache

from sqlalchemy import Connection, Select, String, bindparam, exists, or_, select

from app.domain.deliveries import DeliveryStatus
from app.store.claim_queue import ARCHIVE_SHIFT_MS
from app.store.notice_tables import account_notices
from app.store.resend_tables import resends
from app.store.tables import replays


def is_any_work_waiting(connection: Connection, origin: str) -> bool:
    """Whether a worker of a data centre may find something to do before the next commit.

    That is a replay that waits or runs, a notice or a resend. Reads the start of four indexes.
    """
    return any(connection.execute(_query(), {"origin": origin}).one())


@cache
def _query() -> Select[bool, bool, bool, bool]:
    """The query of `is_any_work_waiting`; building it takes longer than running it."""
    own = bindparam("origin", type_=String)
    return select(
        exists().where(
            or_(replays.c.origin == "", replays.c.origin == own),
            replays.c.claimable_ms < 2 * ARCHIVE_SHIFT_MS,
        ),
        exists().where(replays.c.notice_due_ms >= 0),
        exists(select(account_notices.c.id)),
        exists().where(resends.c.origin == own, resends.c.status == str(DeliveryStatus.PENDING)),
    )
