"""The table of replays as lists show it: those that fit a filter, counted, or by their ids.

Locks nothing. A list of several states is put together from one list for each, which an index has
in order: what is rare among ten thousand is found without a look at all of them.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select, union_all

from app.replay.filters import ReplayFilter
from app.replay.model import Replay
from app.replay.states import ReplayState
from app.store.identity import exactly
from app.store.pages import Page, after_cursor, first_page
from app.store.replays import is_of, to_replay
from app.store.tables import replays

IDS_PER_QUERY: Final = 500
"""Older versions of SQLite take no more than 999 parameters."""

Narrow = Callable[[Select[Any]], Select[Any]]
"""Orders a query, and bounds it."""


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

    query = _listed(select(replays), wanted, of_account, narrow).limit(limit + 1)
    return first_page(connection.execute(query).all(), limit, to_replay)


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

    columns = select(replays.c.id, replays.c.created_ms)
    query = _listed(columns, wanted, of_account, narrow).limit(limit)
    return tuple(connection.execute(query).scalars())


def _listed(
    columns: Select[Any], wanted: ReplayFilter, of_account: str | None, narrow: Narrow
) -> Select[Any]:
    """What `narrow` leaves of each list of one state, as one list."""
    query = columns.where(_fits(wanted, of_account))
    states = sorted(wanted.states)
    # A webhook has few replays, and an index of its own.
    if wanted.webhook_id is not None or len(states) in (0, len(ReplayState)):
        return narrow(query.where(replays.c.state.in_(states)) if states else query)
    parts = [narrow(query.where(replays.c.state == str(state))) for state in states]
    if len(parts) == 1:
        return parts[0]
    # SQLite takes a bound of one part only where that is a query of its own.
    together = union_all(*(select(part.subquery()) for part in parts)).subquery()
    return select(together).order_by(together.c.created_ms.desc(), together.c.id.desc())


def _fits(wanted: ReplayFilter, of_account: str | None) -> ColumnElement[bool]:
    conditions = [is_of(of_account), is_of(wanted.account_id)]
    if wanted.webhook_id is not None:
        conditions.append(exactly(replays.c.webhook_id, wanted.webhook_id))
    if wanted.created_from_ms is not None:
        conditions.append(replays.c.created_ms >= wanted.created_from_ms)
    if wanted.created_to_ms is not None:
        conditions.append(replays.c.created_ms < wanted.created_to_ms)
    if wanted.with_failures:
        conditions.append(replays.c.failed > 0)
    return and_(*conditions)


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
        query = select(replays).where(replays.c.id.in_(chunk), is_of(of_account))
        found |= {row.id: to_replay(row) for row in connection.execute(query)}
    # To MySQL, an id with a space behind it is the same.
    return {replay_id: found[replay_id] for replay_id in asked if replay_id in found}


def active_of(connection: Connection, webhook_ids: Collection[str]) -> dict[str, Replay]:
    """The active replay of each of the webhooks that has one; for `IDS_PER_QUERY` at most."""
    query = select(replays).where(replays.c.active_webhook_id.in_(webhook_ids))
    return {row.webhook_id: to_replay(row) for row in connection.execute(query)}
