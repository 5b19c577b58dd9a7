"""The store as those see it who look at many replays, and at what happened to one."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection

from app.domain.filters import ReplayFilter
from app.domain.model import Replay
from app.domain.moves import Move
from app.domain.samples import Sample
from app.domain.states import ReplayEvent, ReplayState
from app.store import moves, owner_moves, replay_filters, replays, samples
from app.store.calls import Calls
from app.store.pages import PAGE_LIMIT, Page

MOVED_AT_ONCE: Final = 100
"""Replays that one transaction moves: it holds their rows for some tens of milliseconds."""


class SelectionCalls(Calls):
    """Many replays at once, and the record of one.

    `of_account` is the account that asks; None may see all. What is another account's counts as
    not there.
    """

    def replays(
        self,
        webhook_id: str | None = None,
        state: ReplayState | None = None,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
        *,
        of_account: str | None = None,
    ) -> Page[Replay]:
        """A page of the replays of one webhook or all, in one state or all, the latest first.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        states = frozenset[ReplayState]() if state is None else frozenset({state})
        wanted = ReplayFilter(states, webhook_id)
        return self.replays_matching(wanted, cursor, limit, of_account=of_account)

    def replays_matching(
        self,
        wanted: ReplayFilter,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
        *,
        of_account: str | None = None,
    ) -> Page[Replay]:
        """A page of the replays that fit, the latest first.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(
            lambda db: replay_filters.matching(db, wanted, cursor, limit, of_account)
        )

    def count_by_state(
        self, wanted: ReplayFilter, *, of_account: str | None = None
    ) -> Mapping[ReplayState, int]:
        """How many replays there are in each state, of those that fit but for their state."""
        return self._database.read(lambda db: replay_filters.count_by_state(db, wanted, of_account))

    def replays_by_id(
        self, replay_ids: Collection[str], *, of_account: str | None = None
    ) -> dict[str, Replay]:
        """Those of the replays that are there, by their ids."""
        return self._database.read(lambda db: replay_filters.by_id(db, replay_ids, of_account))

    def active_replays_of(self, webhook_ids: Collection[str]) -> dict[str, Replay]:
        """The replay that is active of each webhook, by the webhook's id, in one query.

        For up to 500 webhooks that the caller has seen already; one without any is left out.
        """
        return self._database.read(lambda db: replay_filters.active_of(db, webhook_ids))

    def ids_matching(
        self,
        wanted: ReplayFilter,
        before_ms: int,
        limit: int,
        *,
        of_account: str | None = None,
    ) -> tuple[str, ...]:
        """The ids of those that fit and were created by `before_ms`, the latest first."""
        return self._database.read(
            lambda db: replay_filters.ids_matching(db, wanted, before_ms, limit, of_account)
        )

    def pause_replays(
        self, replay_ids: Collection[str], *, of_account: str | None = None, actor: str | None
    ) -> int:
        """How many of the replays are PAUSED by this; those that cannot be are passed over."""
        return self._move_all(replay_ids, ReplayEvent.PAUSE, of_account, actor)

    def resume_replays(
        self, replay_ids: Collection[str], *, of_account: str | None = None, actor: str | None
    ) -> int:
        """How many of the replays go on by this; those that were not PAUSED are passed over."""
        return self._move_all(replay_ids, ReplayEvent.RESUME, of_account, actor)

    def cancel_replays(
        self, replay_ids: Collection[str], *, of_account: str | None = None, actor: str | None
    ) -> int:
        """How many of the replays are CANCELLED by this; those that are over are passed over."""
        return self._move_all(replay_ids, ReplayEvent.CANCEL, of_account, actor)

    def _move_all(
        self,
        replay_ids: Collection[str],
        event: ReplayEvent,
        of_account: str | None,
        actor: str | None,
    ) -> int:
        """In transactions of a few replays each: workers that wait for a row wait briefly."""
        # In one order, so that two who move the same ones do not wait for each other in a ring.
        ids, moved = sorted(set(replay_ids)), 0
        for start in range(0, len(ids), MOVED_AT_ONCE):
            moved += self._move_some(ids[start : start + MOVED_AT_ONCE], event, of_account, actor)
        return moved

    def _move_some(
        self, ids: list[str], event: ReplayEvent, of_account: str | None, actor: str | None
    ) -> int:
        return self._database.write(
            lambda db: owner_moves.move_all(db, ids, event, of_account, actor)
        )

    def moves(self, replay_id: str, *, of_account: str | None = None) -> tuple[Move, ...]:
        """What happened to the replay, the oldest first: its creation and the latest some 200.

        Raises:
            ReplayNotFound: there is none, or it is another account's.
        """

        def work(db: Connection) -> tuple[Move, ...]:
            replays.get(db, replay_id, of_account)
            return moves.of_replay(db, replay_id)

        return self._database.read(work)

    def samples(self, replay_id: str, *, of_account: str | None = None) -> tuple[Sample, ...]:
        """How far the replay was over time, the oldest first: see `app.domain.samples`.

        Raises:
            ReplayNotFound: there is none, or it is another account's.
        """

        def work(db: Connection) -> tuple[Sample, ...]:
            replays.get(db, replay_id, of_account)
            return samples.of_replay(db, replay_id)

        return self._database.read(work)
