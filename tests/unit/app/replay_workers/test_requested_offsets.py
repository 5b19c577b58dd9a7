"""Offsets that the API looked up are used for some seconds."""

from app.domain.model import OffsetRange
from app.log.replay_requests import RequestHint
from app.replay_workers.requested_offsets import FRESH_S, REMEMBERED_MAX, RequestedOffsets

OFFSETS = OffsetRange(1, 2, 3)


def test_offsets_are_known_while_they_are_fresh() -> None:
    requested = RequestedOffsets()
    requested.add(RequestHint("rpl_a", OFFSETS), 10.0)
    requested.add(RequestHint("rpl_b"), 11.0)
    requested.add(RequestHint("rpl_c", OFFSETS), 12.0)
    assert requested.fresh(10.0 + FRESH_S) == {"rpl_a": OFFSETS, "rpl_c": OFFSETS}
    assert requested.fresh(10.1 + FRESH_S) == {"rpl_c": OFFSETS}
    assert not requested.fresh(13.0 + FRESH_S)


def test_the_oldest_of_too_many_requests_are_forgotten() -> None:
    requested = RequestedOffsets()
    for number in range(REMEMBERED_MAX + 2):
        requested.add(RequestHint(f"rpl_{number}", OFFSETS), 0.0)
    known = requested.fresh(0.0)
    assert len(known) == REMEMBERED_MAX
    assert "rpl_1" not in known
    assert "rpl_2" in known
