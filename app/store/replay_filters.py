"""Lists of replays: by filter, by id, and counted. Locks nothing.

A list first selects ids, which an index has in the right order, and then their rows. A list of
several states is the union of one list per state, so a rare state is found without a scan.
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

from app.domain.model import OffsetRange, Replay, ReplayFilter
from app.domain.options import Source
from app.domain.states import ReplayState
from app.store.pages import PAGE_LIMIT, Page, after_cursor, newest_page
from app.store.replays import to_replay
from app.store.sql import IDS_PER_QUERY, exactly
from app.store.tables import replays
from app.store.webhooks import find_webhook_names

Narrow = Callable[[Select[Any]], Select[Any]]
"""Orders and limits a query."""

_ANY: Final = ReplayFilter()

_IDS: Final = select(replays.c.id, replays.c.created_ms)


def list_replays(
    connection: Connection,
    wanted: ReplayFilter = _ANY,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
    *,
    of_account: str | None = None,
) -> Page[Replay]:
    """A page of the replays that match the filter, newest first.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """

    def narrow(query: Select[Any]) -> Select[Any]:
        return after_cursor(query, (replays.c.created_ms, replays.c.id), cursor, limit)

    rows = connection.execute(_select_ids(wanted, of_account, narrow).limit(limit + 1)).all()
    found = replays_by_id(connection, [row.id for row in rows[:limit]])
    return newest_page(rows, limit, lambda row: found[row.id])


def list_named_replays(
    connection: Connection,
    wanted: ReplayFilter = _ANY,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
    *,
    of_account: str | None = None,
) -> tuple[Page[Replay], dict[str, str]]:
    """As `list_replays`, with the names of the webhooks that exist, by their ids.

    In one transaction, because a second one costs more than the query for the names.
    """
    page = list_replays(connection, wanted, cursor, limit, of_account=of_account)
    return page, find_webhook_names(connection, {replay.webhook_id for replay in page.items})


def list_replay_ids(
    connection: Connection,
    wanted: ReplayFilter,
    before_ms: int,
    limit: int,
    *,
    of_account: str | None = None,
) -> tuple[str, ...]:
    """The ids of replays that match and were created by `before_ms`, newest first."""

    def narrow(query: Select[Any]) -> Select[Any]:
        known = query.where(replays.c.created_ms <= before_ms)
        return known.order_by(replays.c.created_ms.desc(), replays.c.id.desc()).limit(limit)

    query = _select_ids(wanted, of_account, narrow).limit(limit)
    return tuple(connection.execute(query).scalars())


def _select_ids(wanted: ReplayFilter, of_account: str | None, narrow: Narrow) -> Select[Any]:
    """The ids of matching replays, narrowed per state, as one ordered query."""
    query = _IDS.where(_matches(wanted, of_account))
    states = sorted(wanted.states)
    if len(states) in (0, len(ReplayState)):
        return narrow(query)
    if wanted.webhook_id is not None:
        return narrow(query.where(_without_index(replays.c.state).in_(states)))
    parts = [narrow(query.where(replays.c.state == str(state))) for state in states]
    if len(parts) == 1:
        return parts[0]
    # SQLite accepts a LIMIT in a part of a union only within a subquery.
    together = union_all(*(select(part.subquery()) for part in parts)).subquery()
    return select(together).order_by(together.c.created_ms.desc(), together.c.id.desc())


def _matches(wanted: ReplayFilter, of_account: str | None) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = []
    owner: ColumnElement[str] = replays.c.account_id
    if wanted.webhook_id is not None:
        conditions.append(exactly(replays.c.webhook_id, wanted.webhook_id))
        owner = _without_index(owner)
    conditions += [owner == each for each in (of_account, wanted.account_id) if each is not None]
    if wanted.created_from_ms is not None:
        conditions.append(replays.c.created_ms >= wanted.created_from_ms)
    if wanted.created_to_ms is not None:
        conditions.append(replays.c.created_ms < wanted.created_to_ms)
    if wanted.with_failures:
        conditions.append(replays.c.failed > 0)
    if wanted.reason is not None:
        conditions.append(replays.c.reason == str(wanted.reason))
    return and_(true(), *conditions)


def _without_index(column: ColumnElement[str]) -> ColumnElement[str]:
    """The column as an expression that no index covers, so the index of the webhook is used.

    A webhook has few replays. Without statistics, a database may choose the index of states or
    accounts instead.
    """
    return func.coalesce(column, "")


def count_by_state(
    connection: Connection, wanted: ReplayFilter, *, of_account: str | None = None
) -> dict[ReplayState, int]:
    """The number of matching replays in each state; ignores the states of the filter."""
    query = select(replays.c.state, func.count()).where(_matches(wanted, of_account))
    counted = connection.execute(query.group_by(replays.c.state))
    return dict.fromkeys(ReplayState, 0) | {ReplayState(state): count for state, count in counted}


def replays_by_id(
    connection: Connection, replay_ids: Collection[str], *, of_account: str | None = None
) -> dict[str, Replay]:
    """The existing replays of the account, by id; one query per `IDS_PER_QUERY` ids."""
    ids, found = sorted(set(replay_ids)), dict[str, Replay]()
    for start in range(0, len(ids), IDS_PER_QUERY):
        chunk = ids[start : start + IDS_PER_QUERY]
        # By id only: SQLite would otherwise scan all replays of the account.
        rows = connection.execute(select(replays).where(replays.c.id.in_(chunk)))
        visible = (row for row in rows if of_account in (None, row.account_id))
        found |= {row.id: to_replay(row) for row in visible}
    # MySQL also finds ids with trailing spaces.
    return {replay_id: found[replay_id] for replay_id in ids if replay_id in found}


def active_replays_of(connection: Connection, webhook_ids: Collection[str]) -> dict[str, Replay]:
    """The active replays of at most `IDS_PER_QUERY` webhooks, by webhook id."""
    query = select(replays).where(replays.c.active_webhook_id.in_(webhook_ids))
    return {row.webhook_id: to_replay(row) for row in connection.execute(query)}


def earlier_replays(
    connection: Connection, webhook_id: str, offsets: OffsetRange, limit: int, *, origin: str
) -> tuple[Replay, ...]:
    """The latest replays of a webhook that have settled some of `offsets` in an origin's log."""
    query = (
        select(replays)
        .where(
            exactly(replays.c.webhook_id, webhook_id),
            # Each data centre treats offsets without an origin as its own.
            replays.c.origin.in_(("", origin)),
            replays.c.source == str(Source.LOG),
            replays.c.log_partition == offsets.partition,
            replays.c.start_offset < offsets.end,
            replays.c.checkpoint_offset > replays.c.start_offset,
            replays.c.checkpoint_offset > offsets.start,
        )
        .order_by(replays.c.created_ms.desc(), replays.c.id.desc())
        .limit(limit)
    )
    return tuple(to_replay(row) for row in connection.execute(query))
