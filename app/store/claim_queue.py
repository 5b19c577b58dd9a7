"""The column `claimable_ms` of `replays`: the time from which a replay can be claimed.

It holds a time of the database's clock; for a replay of the archive, `ARCHIVE_SHIFT_MS` more. So
these are separate in the index of claims. A worker of the previous version, which would look for
their offsets in `delivery_log`, never reaches that time.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    String,
    and_,
    bindparam,
    case,
    func,
    literal,
    select,
    union_all,
)

from app.domain.options import Source
from app.domain.states import ReplayEvent, moves
from app.store.sql import now_ms
from app.store.tables import ACCOUNT_STATE_INDEX, CLAIM_INDEX, replays

ARCHIVE_SHIFT_MS: Final = 10**16
"""About 300,000 years."""

_SHIFT_MS: Final = case((replays.c.source == str(Source.ARCHIVE), ARCHIVE_SHIFT_MS), else_=0)

_HELD: Final = sorted(moves(ReplayEvent.HEARTBEAT))


class ClaimQueue(NamedTuple):
    """The replays of an account, a source and a data centre (empty: not yet assigned)."""

    account_id: str
    origin: str = ""
    source: Source = Source.LOG

    def is_due(self) -> ColumnElement[bool]:
        """Whether a replay is in this queue and can be claimed now."""
        return and_(
            replays.c.claim_account_id == self.account_id,
            _is_due(self.origin, self.source),
            replays.c.source == str(self.source),
        )


class WaitingAccount(NamedTuple):
    """The account whose turn it is, and the number of its replays that workers run."""

    queue: ClaimQueue
    running: int


def find_waiting_account(
    connection: Connection, origin: str, after: str = ""
) -> WaitingAccount | None:
    """The next account after `after`, in circular order, that has a replay for `origin`'s workers.

    The queue is the account's longest waiting one. None if no replay waits. Locks nothing, so idle
    workers do not slow down others. Reads the index of claims from `after` to the next replay that
    waits: those between are held, postponed, or paused.
    """
    kinds = _kinds_of(origin)
    found = connection.execute(_turn_query(kinds, bool(after)), {"after": after}).first()
    if found is None:
        return None
    return WaitingAccount(ClaimQueue(found.account_id, *kinds[found.number]), found.running)


_Kind = tuple[str, Source]


def _kinds_of(origin: str) -> tuple[_Kind, ...]:
    return tuple(sorted({("", Source.LOG), (origin, Source.LOG), (origin, Source.ARCHIVE)}))


@lru_cache(maxsize=16)
def _turn_query(kinds: tuple[_Kind, ...], is_circular: bool) -> Select[Any]:
    """The query of `find_waiting_account`; building it takes longer than running it."""
    parts = [
        _first_due(number, is_wrapped, *kind)
        for is_wrapped in ((False, True) if is_circular else (True,))
        for number, kind in enumerate(kinds)
    ]
    found = union_all(*(select(part.subquery()) for part in parts)).subquery()
    first = select(found).order_by(found.c.is_wrapped, found.c.account_id, found.c.time_ms)
    turn = first.limit(1).subquery()
    running = running_replays(turn.c.account_id).scalar_subquery()
    return select(turn, running.label("running"))


def _first_due(number: int, is_wrapped: bool, origin: str, source: Source) -> Select[Any]:
    """The first replay of one kind, by account, that can be claimed now."""
    after = literal("") if is_wrapped else bindparam("after", type_=String)
    return (
        select(
            literal(number).label("number"),
            literal(int(is_wrapped)).label("is_wrapped"),
            replays.c.claim_account_id.label("account_id"),
            (replays.c.claimable_ms - _shift_ms(source)).label("time_ms"),
        )
        .with_hint(replays, f"FORCE INDEX ({CLAIM_INDEX})", "mysql")
        .where(replays.c.claim_account_id > after, _is_due(origin, source))
        .order_by(replays.c.claim_account_id, replays.c.claimable_ms)
        .limit(1)
    )


def running_replays(account_id: ColumnElement[str]) -> Select[Any]:
    """A query for the number of an account's replays that workers hold, in all data centres."""
    held = replays.alias()
    shift_ms = case((held.c.source == str(Source.ARCHIVE), ARCHIVE_SHIFT_MS), else_=0)
    # One whose worker died is not running: at the limit, nothing could take it over.
    is_held = and_(held.c.state.in_(_HELD), held.c.claimable_ms > now_ms() + shift_ms)
    return (
        select(func.count())
        .select_from(held)
        .with_hint(held, f"FORCE INDEX ({ACCOUNT_STATE_INDEX})", "mysql")
        .where(held.c.account_id == account_id, is_held)
    )


def _is_due(origin: str, source: Source) -> ColumnElement[bool]:
    shift_ms = _shift_ms(source)
    return and_(
        replays.c.origin == origin,
        replays.c.claimable_ms >= shift_ms,
        replays.c.claimable_ms <= now_ms() + shift_ms,
    )


def _shift_ms(source: Source) -> int:
    return ARCHIVE_SHIFT_MS if source is Source.ARCHIVE else 0


def claimable_now(source: Source) -> ColumnElement[int]:
    """The value of the column for a new replay that can be claimed at once."""
    return now_ms() + _shift_ms(source)


def claimable_from(time_ms: ColumnElement[int]) -> ColumnElement[int]:
    """The value of the column for a replay that can be claimed from `time_ms`."""
    return time_ms + _SHIFT_MS


def claimable_time_ms() -> ColumnElement[int]:
    """The time that the column stands for."""
    return replays.c.claimable_ms - _SHIFT_MS


def queued_since_ms() -> ColumnElement[int]:
    """Since when a replay could first be claimed: its creation, or the restore of its records."""
    return func.coalesce(replays.c.restored_ms, replays.c.created_ms)
