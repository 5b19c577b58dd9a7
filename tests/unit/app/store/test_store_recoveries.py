"""Recoveries are stored, marked and turned into one replay each."""

import gc
from dataclasses import replace

import pytest

from app.domain.endpoint_options import EndpointOptions, Ordering
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.moves import MoveEvent
from app.domain.options import Only, ReplayReason
from app.domain.recovery import OutageRecord
from app.domain.states import ReplayState
from app.store import Store
from app.store.recovery_replays import ACTOR, AHEAD_MS
from app.webhooks.signing import new_secret

RECORD = OutageRecord(since_ms=900, window=Window(1_000, 2_000), failed_probes=2, next_probe_ms=5)


@pytest.fixture
def webhook(store: Store) -> Webhook:
    made = store.create_webhook(NewWebhook("https://example.com/a", "", new_secret()))
    return store.enable_webhook(made.id, made.url)


def start_due(store: Store, origin: str = "here") -> list[str]:
    """The replays of all recoveries that are due."""
    started = []
    for webhook_id in store.find_due_recoveries(10, origin=origin):
        replay = store.start_recovery(webhook_id, origin=origin)
        assert replay is not None
        started.append(replay.id)
    return started


def test_a_stored_window_is_extended_and_never_reduced(store: Store, webhook: Webhook) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here")
    assert store.recoveries(origin="here") == {webhook.id: RECORD}
    assert store.recoveries(origin="there") == {}
    later = OutageRecord(950, Window(1_500, 3_000), 0, 7)
    store.save_recovery(webhook.id, later, origin="here")
    assert store.recoveries(origin="here") == {
        webhook.id: OutageRecord(900, Window(1_000, 3_000), 0, 7)
    }


def test_a_recovery_is_due_when_the_receiver_is_back_and_creates_one_replay(
    store: Store, webhook: Webhook
) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here")
    assert start_due(store) == []
    assert store.start_recovery(webhook.id, origin="here") is None
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    assert start_due(store, "there") == []
    (replay_id,) = start_due(store)
    assert store.start_recovery(webhook.id, origin="here") is None
    replay = store.replay(replay_id)
    assert (replay.reason, replay.options.only) == (ReplayReason.RECOVERY, Only.FAILED)
    assert (replay.origin, replay.window.from_ms) == ("here", 1_000)
    assert replay.window.to_ms > RECORD.window.to_ms
    (move,) = store.moves(replay_id)
    assert (move.event, move.actor) == (MoveEvent.CREATE, ACTOR)


def test_a_recovery_waits_for_the_active_replay_of_its_webhook(
    store: Store, webhook: Webhook
) -> None:
    active, _ = store.create_replay(NewReplay(webhook.id, Window(1, 2)))
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    assert start_due(store) == []
    assert store.start_recovery(webhook.id, origin="here") is None
    store.cancel_replay(active.id)
    assert len(start_due(store)) == 1


def test_enabling_a_webhook_makes_the_recoveries_of_all_data_centres_due(
    store: Store, webhook: Webhook
) -> None:
    for origin in ("here", "there"):
        store.save_recovery(webhook.id, RECORD, origin=origin)
    store.disable_webhook(webhook.id, "it failed for a day")
    assert start_due(store) == start_due(store, "there") == []
    store.enable_webhook(webhook.id, webhook.url)
    assert len(start_due(store)) == 1
    # One active replay at a time.
    assert start_due(store, "there") == []


def test_a_due_recovery_of_a_webhook_that_fails_again_is_not_started(
    store: Store, webhook: Webhook
) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    store.save_recovery(webhook.id, replace(RECORD, failed_probes=0), origin="here")
    assert start_due(store) == []


def test_without_missed_events_or_webhook_nothing_is_left(store: Store, webhook: Webhook) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here")
    store.drop_recovery(webhook.id, RECORD.since_ms, origin="here")
    assert store.recoveries(origin="here") == {}
    store.save_recovery(webhook.id, RECORD, origin="here")
    store.delete_webhook(webhook.id)
    assert store.recoveries(origin="here") == {}


def test_an_outage_without_missed_events_leaves_the_recovery_of_the_previous_one(
    store: Store, webhook: Webhook
) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    # It begins before the replay is created.
    since_ms = RECORD.since_ms + 1
    store.save_recovery(webhook.id, replace(RECORD, since_ms=since_ms), origin="here")
    store.drop_recovery(webhook.id, since_ms, origin="here")
    (replay_id,) = start_due(store)
    assert store.replay(replay_id).window.from_ms == RECORD.window.from_ms


def test_a_recovery_that_no_process_continues_is_due_once_its_webhook_is_healthy(
    store: Store, webhook: Webhook
) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here")
    store.record_failing_since(webhook.id, 900)
    assert store.finish_abandoned_recoveries(origin="here") == 0
    store.record_failing_since(webhook.id, None)
    assert store.finish_abandoned_recoveries(origin="there") == 0
    assert store.finish_abandoned_recoveries(origin="here") == 1
    assert len(start_due(store)) == 1


@pytest.mark.parametrize("is_due", [False, True])
def test_a_failed_recovery_is_recovered_again(store: Store, webhook: Webhook, is_due: bool) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    (first_id,) = start_due(store)
    claim = store.claim("worker", 60, "here")
    assert claim is not None
    assert store.fail_recovery(claim.lease, "records were deleted", claim.replay, is_due=is_due)
    assert store.replay(first_id).state is ReplayState.FAILED
    if not is_due:
        assert start_due(store) == []
        store.enable_webhook(webhook.id, webhook.url)
    (second_id,) = start_due(store)
    assert store.replay(second_id).window.from_ms == 1_000


def test_a_recovery_is_unfinished_until_its_replay_has_ended(
    store: Store, webhook: Webhook
) -> None:
    store.save_recovery(webhook.id, RECORD, origin="here")
    assert store.find_unfinished(origin="here") == {webhook.id: RECORD}
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    assert store.find_unfinished(origin="here") == {webhook.id: None}
    (replay_id,) = start_due(store)
    assert store.find_unfinished(origin="here") == {webhook.id: None}
    # A second outage during the recovery.
    store.save_recovery(webhook.id, RECORD, origin="here")
    assert store.find_unfinished(origin="here") == {webhook.id: None}
    assert store.find_unfinished(origin="there") == {}
    store.cancel_replay(replay_id)
    assert store.find_unfinished(origin="here") == {webhook.id: RECORD}
    store.drop_recovery(webhook.id, RECORD.since_ms, origin="here")
    store.create_replay(NewReplay(webhook.id, Window(1, 2)))
    assert store.find_unfinished(origin="here") == {}


def test_the_recovery_of_an_ordered_webhook_sends_one_event_at_a_time(
    store: Store, webhook: Webhook
) -> None:
    strict = EndpointOptions(ordering=Ordering.STRICT)
    store.update_webhook(webhook.id, change_options=lambda _: strict)
    store.save_recovery(webhook.id, RECORD, origin="here", is_recovered=True)
    replay = store.start_recovery(webhook.id, origin="here")
    assert replay is not None
    assert replay.options.max_in_flight == 1
    # Also events that are logged after its creation, until it looks up the end of the log.
    assert replay.window.to_ms >= webhook.created_ms + AHEAD_MS


def test_a_look_up_of_due_recoveries_leaves_nothing_to_the_garbage_collector(
    store: Store,
) -> None:
    def look_up(times: int) -> int:
        """The objects in cycles that so many look-ups leave."""
        gc.collect()
        for _ in range(times):
            assert store.find_due_recoveries(10, origin="here") == ()
        return gc.collect()

    gc.disable()
    try:
        look_up(1)
        assert look_up(20) - look_up(10) < 10
    finally:
        gc.enable()
