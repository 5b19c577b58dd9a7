"""The idle time of a replay, which its throughput excludes."""

from collections.abc import Callable

from app.domain.model import Claim, Lease, Replay
from app.store import Store


def idle_through(store: Store, claimed: Claim, give_up: Callable[[Replay], None]) -> None:
    """Give a replay back and claim it again until the idle time is at least a millisecond."""
    replay, expected_ms = claimed.replay, 0
    assert replay.idle_ms == 0
    while not expected_ms:
        give_up(replay)
        before_ms = store.replay(replay.id).heartbeat_ms
        claim = store.claim("successor", 3_600)
        assert claim is not None
        replay = claim.replay
        assert replay.heartbeat_ms is not None
        assert before_ms is not None
        expected_ms += replay.heartbeat_ms - before_ms
        assert replay.idle_ms == expected_ms
    assert store.replay(replay.id).idle_ms == expected_ms


def test_a_pause_is_idle_time_until_the_next_claim(store: Store, claimed: Claim) -> None:
    def pause(replay: Replay) -> None:
        store.pause_replay(replay.id)
        store.resume_replay(replay.id)

    idle_through(store, claimed, pause)


def test_the_wait_after_a_release_is_idle_time(store: Store, claimed: Claim) -> None:
    def give_back(replay: Replay) -> None:
        lease = Lease(replay.id, replay.lease_epoch)
        assert store.postpone(lease, "the log does not answer", 0.0)

    idle_through(store, claimed, give_back)
