"""Offsets of requests are used for some seconds, and one worker polls for a request at once."""

from app.domain.model import OffsetRange
from app.log.replay_requests import RequestHint
from app.replay_workers.requested_replays import (
    CLAIM_S,
    FRESH_S,
    REMEMBERED_MAX,
    SPREAD_S,
    RequestedReplays,
)

OFFSETS = OffsetRange(1, 2, 3)


def test_offsets_are_known_while_they_are_fresh() -> None:
    requested = RequestedReplays("worker-1")
    requested.add(RequestHint("rpl_a", OFFSETS), 10.0)
    requested.add(RequestHint("rpl_b"), 11.0)
    requested.add(RequestHint("rpl_c", OFFSETS), 12.0)
    assert requested.fresh_offsets(10.0 + FRESH_S) == {"rpl_a": OFFSETS, "rpl_c": OFFSETS}
    assert requested.fresh_offsets(10.1 + FRESH_S) == {"rpl_c": OFFSETS}
    assert not requested.fresh_offsets(13.0 + FRESH_S)


def test_the_oldest_of_too_many_requests_are_forgotten() -> None:
    requested = RequestedReplays("worker-1")
    for number in range(REMEMBERED_MAX + 2):
        requested.add(RequestHint(f"rpl_{number}", OFFSETS), 0.0)
    known = requested.fresh_offsets(0.0)
    assert len(known) == REMEMBERED_MAX
    assert "rpl_1" not in known
    assert "rpl_2" in known


def test_a_replay_that_a_worker_has_claimed_is_open_no_more() -> None:
    requested = RequestedReplays("worker-1")
    for replay_id in ("rpl_a", "rpl_b"):
        requested.add(RequestHint(replay_id, OFFSETS), 0.0)
    requested.add(RequestHint("rpl_a", claimed_by="worker-2"), 0.0)
    requested.add(RequestHint("rpl_never", claimed_by="worker-2"), 0.0)
    assert [requested.is_open(each) for each in ("rpl_a", "rpl_b")] == [False, True]
    assert requested.fresh_offsets(0.0) == {"rpl_b": OFFSETS}


def test_the_worker_that_claimed_last_polls_at_once_while_it_is_idle() -> None:
    first, other = RequestedReplays("worker-1"), RequestedReplays("worker-2")
    for requested in (first, other):
        assert requested.poll_delay_s(0, 0.5) == 0.0  # no claim is known
        requested.add(RequestHint("rpl_a", claimed_by="worker-1"), 0.0)
    assert first.poll_delay_s(0, 0.5) == 0.0
    assert CLAIM_S <= other.poll_delay_s(0, 0.0) < other.poll_delay_s(0, 0.99) < CLAIM_S + SPREAD_S
    assert other.poll_delay_s(0, 0.99) < first.poll_delay_s(1, 0.0) < first.poll_delay_s(2, 0.0)
    for requested in (first, other):
        requested.add(RequestHint("rpl_b", claimed_by="worker-2"), 0.0)
    assert other.poll_delay_s(0, 0.5) == 0.0 < first.poll_delay_s(0, 0.5)
