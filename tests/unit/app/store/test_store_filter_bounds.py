"""Filters by creation time and by failures."""

import pytest
from sqlalchemy import create_engine, update

from app.domain.model import (
    Counts,
    Failure,
    NewReplay,
    NewWebhook,
    OffsetRange,
    ReplayFilter,
    Window,
)
from app.domain.options import ReplayReason
from app.domain.states import ReplayEvent, ReplayState
from app.store import Store
from app.store.tables import replays
from app.webhooks.signing import new_secret

NO_STATE = dict.fromkeys(ReplayState, 0)


@pytest.fixture
def created(store: Store, database_url: str) -> list[str]:
    """Replays created at 100, 200 and 300."""
    engine = create_engine(database_url)
    ids = []
    for created_ms in (100, 200, 300):
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        replay, _ = store.create_replay(NewReplay(webhook.id, Window(1, 2)))
        ids.append(replay.id)
        with engine.begin() as connection:
            it = update(replays).where(replays.c.id == replay.id)
            connection.execute(it.values(created_ms=created_ms))
    engine.dispose()
    return ids


def found(store: Store, wanted: ReplayFilter) -> list[str]:
    """The ids that match a filter; counts and lists of ids agree."""
    ids = [replay.id for replay in store.replays(wanted).items]
    assert sum(store.count_by_state(wanted).values()) == len(ids)
    assert list(store.replay_ids(wanted, 2**62, 10)) == ids
    return ids


def test_a_time_range_includes_its_start_and_excludes_its_end(
    store: Store, created: list[str]
) -> None:
    assert found(store, ReplayFilter(created_from_ms=200)) == [created[2], created[1]]
    assert found(store, ReplayFilter(created_to_ms=200)) == [created[0]]
    assert found(store, ReplayFilter(created_from_ms=200, created_to_ms=300)) == [created[1]]


def test_a_time_range_also_limits_a_list_of_several_states(
    store: Store, created: list[str]
) -> None:
    store.move_replays([created[1]], ReplayEvent.PAUSE, actor=None)
    store.move_replays([created[2]], ReplayEvent.CANCEL, actor=None)
    wanted = ReplayFilter(
        frozenset({ReplayState.OPEN, ReplayState.PAUSED, ReplayState.CANCELLED}),
        created_to_ms=300,
    )
    assert found(store, wanted) == [created[1], created[0]]


def test_a_filter_finds_replays_with_failures(store: Store, created: list[str]) -> None:
    claim = store.claim("one", 3_600)
    assert claim is not None
    store.begin_delivery(claim.lease, OffsetRange(0, 0, 10))
    store.checkpoint(claim.lease, 5, Counts(failed=1), [Failure(2, "evt", 3, 500, "no")])

    wanted = ReplayFilter(with_failures=True)
    assert found(store, wanted) == [claim.replay.id]
    assert store.count_by_state(wanted) == NO_STATE | {ReplayState.ONGOING: 1}


def test_a_filter_finds_the_replays_of_recoveries(store: Store) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    requested = store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))[0]
    store.cancel_replay(requested.id)
    recovery = NewReplay(webhook.id, Window(1_000, 2_000), reason=ReplayReason.RECOVERY)
    recovered = store.create_replay(recovery)[0]
    assert found(store, ReplayFilter(reason=ReplayReason.RECOVERY)) == [recovered.id]
    assert found(store, ReplayFilter(reason=ReplayReason.REQUEST)) == [requested.id]
