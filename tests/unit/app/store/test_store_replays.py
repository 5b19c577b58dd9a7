import pytest

from app.domain.model import (
    Claim,
    Counts,
    IdempotencyKey,
    NewReplay,
    NewWebhook,
    OffsetRange,
    ReplayFilter,
    Webhook,
    Window,
)
from app.domain.states import ReplayState
from app.store import (
    ActiveReplayExists,
    IdempotencyConflict,
    IllegalMove,
    ReplayNotFound,
    Store,
    WebhookNotFound,
)
from app.webhooks.signing import new_secret

WINDOW = Window(1_700_000_000_000, 1_700_000_360_000)
KEY = IdempotencyKey.of("a key", b'{"webhookId": 1}')


def test_a_new_replay_is_open_and_unclaimed(store: Store, webhook: Webhook) -> None:
    replay, created = store.create_replay(NewReplay(webhook.id, WINDOW))
    assert created
    assert replay.id.startswith("rpl_")
    assert (replay.webhook_id, replay.window) == (webhook.id, WINDOW)
    assert (replay.state, replay.lease_epoch, replay.worker) == (ReplayState.OPEN, 0, None)
    assert (replay.offsets, replay.checkpoint, replay.counts) == (None, None, Counts())
    assert (replay.started_ms, replay.heartbeat_ms, replay.finished_ms) == (None, None, None)
    assert replay.created_ms >= webhook.created_ms
    assert store.replay(replay.id) == replay


def test_a_replay_needs_a_webhook(store: Store) -> None:
    with pytest.raises(WebhookNotFound, match="'wh_none' does not exist"):
        store.create_replay(NewReplay("wh_none", WINDOW))


def test_an_unknown_replay_is_not_found(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    for replay_id in ("rpl_none", replay.id + " "):
        for ask in (store.replay, store.cancel_replay, store.failures):
            with pytest.raises(ReplayNotFound, match=f"'{replay_id}' does not exist"):
                ask(replay_id)
    assert store.replay(replay.id) == replay
    assert store.replays(ReplayFilter(webhook_id=webhook.id + " ")).items == ()


def test_a_webhook_has_one_active_replay(store: Store, webhook: Webhook) -> None:
    first, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    with pytest.raises(ActiveReplayExists) as refused:
        store.create_replay(NewReplay(webhook.id, WINDOW))
    assert refused.value.replay_id == first.id
    other = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    assert store.create_replay(NewReplay(other.id, WINDOW))[1]


def test_the_next_replay_can_be_created_after_the_last_has_ended(
    store: Store, webhook: Webhook
) -> None:
    def cancelled() -> None:
        store.cancel_replay(
            store.replays(ReplayFilter(frozenset({ReplayState.OPEN}), webhook.id)).items[0].id
        )

    def failed() -> None:
        claim = store.claim("w", 60)
        assert claim is not None
        assert store.fail(claim.lease, "broken")

    def completed() -> None:
        claim = store.claim("w", 60)
        assert claim is not None
        assert store.begin_delivery(claim.lease, OffsetRange(0, 0, 0))
        assert store.complete(claim.lease)

    for end in (cancelled, failed, completed):
        assert store.create_replay(NewReplay(webhook.id, WINDOW))[1]
        end()
    assert {
        replay.state for replay in store.replays(ReplayFilter(webhook_id=webhook.id)).items
    } == {
        ReplayState.CANCELLED,
        ReplayState.FAILED,
        ReplayState.COMPLETED,
    }


def test_a_claim_begins_delivery_where_the_offsets_are_known(
    store: Store, webhook: Webhook
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    offsets = OffsetRange(3, 10, 20)
    claim = store.claim("w", 60, located={replay.id: offsets, "rpl_other": OffsetRange(0, 0, 1)})
    assert claim is not None
    assert claim.has_begun
    stored = store.replay(replay.id)
    assert (stored.state, stored.offsets, stored.checkpoint) == (ReplayState.ONGOING, offsets, 10)
    assert claim.replay == stored


def test_a_claim_keeps_the_offsets_of_an_earlier_worker(store: Store, webhook: Webhook) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    first = store.claim("w", 60)
    assert first is not None
    assert not first.has_begun
    assert store.begin_delivery(first.lease, OffsetRange(0, 5, 9))
    assert store.release(first.lease)
    claim = store.claim("v", 60, located={replay.id: OffsetRange(0, 7, 9)})
    assert claim is not None
    assert not claim.has_begun
    assert store.replay(replay.id).offsets == OffsetRange(0, 5, 9)


def test_the_same_key_and_request_return_the_same_replay(store: Store, webhook: Webhook) -> None:
    first, created = store.create_replay(NewReplay(webhook.id, WINDOW), KEY)
    again, created_again = store.create_replay(NewReplay(webhook.id, WINDOW), KEY)
    assert (created, created_again) == (True, False)
    assert again == first
    cancelled = store.cancel_replay(first.id)
    assert store.create_replay(NewReplay(webhook.id, WINDOW), KEY) == (cancelled, False)


def test_a_key_is_valid_after_its_webhook_is_deleted(store: Store, webhook: Webhook) -> None:
    first, _ = store.create_replay(NewReplay(webhook.id, WINDOW), KEY)
    store.delete_webhook(webhook.id)
    again, created = store.create_replay(NewReplay(webhook.id, WINDOW), KEY)
    assert (again.id, created) == (first.id, False)


def test_the_same_key_with_another_request_is_a_conflict(store: Store, webhook: Webhook) -> None:
    first, _ = store.create_replay(NewReplay(webhook.id, WINDOW), KEY)
    with pytest.raises(
        IdempotencyConflict, match="'a key' was used for another request"
    ) as refused:
        store.create_replay(NewReplay(webhook.id, WINDOW), IdempotencyKey.of("a key", b"other"))
    assert refused.value.replay_id == first.id


def test_keys_differ_by_case_and_by_spaces_and_may_be_long(store: Store, webhook: Webhook) -> None:
    for key in ("key", "KEY", "key ", "k" * 5_000, "schlüssel", ""):
        replay, created = store.create_replay(
            NewReplay(webhook.id, WINDOW), IdempotencyKey.of(key, b"body")
        )
        assert created
        store.cancel_replay(replay.id)


def test_a_rejected_request_does_not_use_its_key(store: Store, webhook: Webhook) -> None:
    first, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
    with pytest.raises(ActiveReplayExists):
        store.create_replay(NewReplay(webhook.id, WINDOW), KEY)
    store.cancel_replay(first.id)
    assert store.create_replay(NewReplay(webhook.id, WINDOW), KEY)[1]


def test_a_cancelled_replay_cannot_be_cancelled_again(store: Store, claimed: Claim) -> None:
    cancelled = store.cancel_replay(claimed.replay.id)
    assert cancelled.state is ReplayState.CANCELLED
    assert cancelled.finished_ms is not None
    assert cancelled.finished_ms >= cancelled.created_ms
    with pytest.raises(IllegalMove, match="is CANCELLED") as refused:
        store.cancel_replay(claimed.replay.id)
    assert refused.value.state is ReplayState.CANCELLED


def test_replays_are_listed_by_webhook_and_state_newest_first(store: Store) -> None:
    webhooks = [
        store.create_webhook(NewWebhook("https://example.com/", "", new_secret())) for _ in range(2)
    ]
    cancelled, active = [], []
    for webhook in webhooks:
        for _ in range(2):
            replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW))
            cancelled.append(store.cancel_replay(replay.id))
        active.append(store.create_replay(NewReplay(webhook.id, WINDOW))[0])

    def ids(wanted: ReplayFilter) -> list[str]:
        listed, cursor = [], None
        while True:
            page = store.replays(wanted, cursor, limit=2)
            listed += [replay.id for replay in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return listed

    every = sorted(cancelled + active, key=lambda r: (r.created_ms, r.id), reverse=True)
    assert ids(ReplayFilter()) == [replay.id for replay in every]
    for webhook in webhooks:
        own = [replay.id for replay in every if replay.webhook_id == webhook.id]
        assert ids(ReplayFilter(webhook_id=webhook.id)) == own
    assert sorted(ids(ReplayFilter(frozenset({ReplayState.OPEN})))) == sorted(
        replay.id for replay in active
    )
    assert ids(ReplayFilter(frozenset({ReplayState.OPEN}), webhooks[0].id)) == [active[0].id]
    assert ids(ReplayFilter(webhook_id="wh_none")) == []


def test_earlier_replays_are_those_that_settled_offsets_of_a_range(
    store: Store, webhook: Webhook
) -> None:
    def ended(start: int, checkpoint: int) -> str:
        replay, _ = store.create_replay(NewReplay(webhook.id, WINDOW, origin="a"))
        claim = store.claim("one", 3_600, "a")
        assert claim is not None
        assert store.begin_delivery(claim.lease, OffsetRange(3, start, 100))
        assert store.checkpoint(claim.lease, checkpoint, Counts(), ())
        assert store.complete(claim.lease)
        return replay.id

    first, second = ended(10, 40), ended(30, 100)
    ended(50, 50)

    def found(partition: int, start: int, end: int, origin: str = "a", limit: int = 9) -> set[str]:
        offsets = OffsetRange(partition, start, end)
        ids = [each.id for each in store.earlier_replays(webhook.id, offsets, limit, origin=origin)]
        assert len(ids) == len(set(ids))
        return set(ids)

    assert found(3, 0, 100) == {first, second}
    assert found(3, 39, 100) == {first, second}
    assert found(3, 40, 100) == {second}
    assert found(3, 0, 30) == {first}
    assert found(3, 0, 10) == found(4, 0, 100) == found(3, 0, 100, origin="b") == set()
    assert len(found(3, 0, 100, limit=1)) == 1
