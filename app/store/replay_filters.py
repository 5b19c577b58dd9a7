"""The table of replays as lists show it: those that fit a filter, counted, or by their ids.

Locks nothing. A list is one of ids first, which an index has in its order, and then of their rows.
Of several states it is put together from a list for each: what is rare among ten thousand is found
without a look at all of them.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    func,
    select,
    true,
    union_all,
)

from app.domain.filters import ReplayFilter
from app.domain.model import Replay
from app.domain.states import ReplayState
from app.store.identity import exactly
from app.store.pages import Page, after_cursor, first_page
from app.store.replays import to_replay
from app.store.tables import replays

IDS_PER_QUERY: Final = 500
"""Older versions of SQLite take no more than 999 parameters."""

Narrow = Callable[[Select[Any]], Select[Any]]
"""Orders a query, and bounds it."""

_IDS: Final = select(replays.c.id, replays.c.created_ms)


def matching(
    connection: Connection,
    wanted: ReplayFilter,
    cursor: str | None,
    limit: int,
    of_account: str | None,
) -> Page[Replay]:
    """A page of the replays that fit, the latest first.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """

    def narrow(query: Select[Any]) -> Select[Any]:
        return after_cursor(query, (replays.c.created_ms, replays.c.id), cursor, limit)

    rows = connection.execute(_listed(wanted, of_account, narrow).limit(limit + 1)).all()
    found = by_id(connection, [row.id for row in rows[:limit]], None)
    return first_page(rows, limit, lambda row: found[row.id])


def ids_matching(
    connection: Connection,
    wanted: ReplayFilter,
    before_ms: int,
    limit: int,
    of_account: str | None,
) -> tuple[str, ...]:
    """The ids of those that fit and were created by `before_ms`, the latest first."""

    def narrow(query: Select[Any]) -> Select[Any]:
        known = query.where(replays.c.created_ms <= before_ms)
        return known.order_by(replays.c.created_ms.desc(), replays.c.id.desc()).limit(limit)

    query = _listed(wanted, of_account, narrow).limit(limit)
    return tuple(connection.execute(query).scalars())


def _listed(wanted: ReplayFilter, of_account: str | None, narrow: Narrow) -> Select[Any]:
    """The ids that `narrow` leaves of the list of each state, as one list."""
    query = _IDS.where(_fits(wanted, of_account))
    states = sorted(wanted.states)
    if len(states) in (0, len(ReplayState)):
        return narrow(query)
    if wanted.webhook_id is not None:
        return narrow(query.where(_unindexed(replays.c.state).in_(states)))
    parts = [narrow(query.where(replays.c.state == str(state))) for state in states]
    if len(parts) == 1:
        return parts[0]
    # SQLite takes a bound of one part only where that is a query of its own.
    together = union_all(*(select(part.subquery()) for part in parts)).subquery()
    return select(together).order_by(together.c.created_ms.desc(), together.c.id.desc())


def _fits(wanted: ReplayFilter, of_account: str | None) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = []
    owner: ColumnElement[str] = replays.c.account_id
    if wanted.webhook_id is not None:
        conditions.append(exactly(replays.c.webhook_id, wanted.webhook_id))
        owner = _unindexed(owner)
    conditions += [owner == each for each in (of_account, wanted.account_id) if each is not None]
    if wanted.created_from_ms is not None:
        conditions.append(replays.c.created_ms >= wanted.created_from_ms)
    if wanted.created_to_ms is not None:
        conditions.append(replays.c.created_ms < wanted.created_to_ms)
    if wanted.with_failures:
        conditions.append(replays.c.failed > 0)
    return and_(true(), *conditions)


def _unindexed(column: ColumnElement[str]) -> ColumnElement[str]:
    """The column as no index has it: a webhook has few replays, and an index of its own.

    Without statistics, databases take one of states, or of an account, for as good.
    """
    return func.coalesce(column, "")


def count_by_state(
    connection: Connection, wanted: ReplayFilter, of_account: str | None
) -> dict[ReplayState, int]:
    """How many replays fit, whatever the states of the filter, in each state."""
    query = select(replays.c.state, func.count()).where(_fits(wanted, of_account))
    counted = connection.execute(query.group_by(replays.c.state))
    return dict.fromkeys(ReplayState, 0) | {ReplayState(state): count for state, count in counted}


def by_id(
    connection: Connection, replay_ids: Collection[str], of_account: str | None
) -> dict[str, Replay]:
    """Those of the replays that are there and the account's; one query for `IDS_PER_QUERY`."""
    asked, found = sorted(set(replay_ids)), dict[str, Replay]()
    for start in range(0, len(asked), IDS_PER_QUERY):
        chunk = asked[start : start + IDS_PER_QUERY]
        # By the ids alone: SQLite would look through all of the account.
        rows = connection.execute(select(replays).where(replays.c.id.in_(chunk)))
        seen = (row for row in rows if of_account in (None, row.account_id))
        found |= {row.id: to_replay(row) for row in seen}
    # To MySQL, an id with a space behind it is the same.
    return {replay_id: found[replay_id] for replay_id in asked if replay_id in found}


def active_of(connection: Connection, webhook_ids: Collection[str]) -> dict[str, Replay]:
    """The active replay of each of the webhooks that has one; for `IDS_PER_QUERY` at most."""
    query = select(replays).where(replays.c.active_webhook_id.in_(webhook_ids))
    return {row.webhook_id: to_replay(row) for row in connection.execute(query)}
