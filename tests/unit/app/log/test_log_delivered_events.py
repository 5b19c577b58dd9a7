"""Which records of a log the outcomes of several data centres name."""

from app.domain.dedupe import lasting_digest
from app.domain.delivery import LiveOutcome
from app.domain.model import OffsetRange
from app.log.delivered import DeliveredEvents
from app.log.event import LoggedEvent
from app.log.outcomes import DeliveryOutcome

RANGE = OffsetRange(3, 100, 200)


def event(number: int, offset: int, origin: str) -> LoggedEvent:
    return LoggedEvent(offset, 0, b"wh_1", f"evt_{number}", "t", b"{}", origin)


def outcome(number: int, offset: int, partition: int = 3) -> DeliveryOutcome:
    event_id = f"evt_{number}"
    digest = lasting_digest(event_id, b"{}")
    kind = LiveOutcome.DELIVERED
    return DeliveryOutcome(partition, offset, event_id, kind, 1, 204, None, 0, digest)


def test_local_outcomes_name_offsets_of_records_of_any_origin() -> None:
    found = DeliveredEvents("a", RANGE, 10)
    found.add(outcome(1, 150), "a")
    assert [event(1, 150, origin) in found for origin in ("a", "", "b")] == [True] * 3
    assert event(1, 151, "a") not in found


def test_outcomes_of_here_count_in_their_range_alone() -> None:
    found = DeliveredEvents("a", RANGE, 10)
    for offset, partition in ((99, 3), (200, 3), (150, 2)):
        found.add(outcome(1, offset, partition), "a")
    assert not any(event(1, offset, "a") in found for offset in (99, 150, 200))


def test_outcomes_of_elsewhere_name_events_that_were_not_made_here() -> None:
    found = DeliveredEvents("a", RANGE, 10)
    found.add(outcome(1, 7), "b")
    assert [event(1, 150, origin) in found for origin in ("b", "c", "a", "")] == [
        True,
        True,
        False,
        False,
    ]
    assert event(2, 7, "b") not in found


def test_an_outcome_that_does_not_say_where_it_is_from_names_nothing() -> None:
    found = DeliveredEvents("a", RANGE, 10)
    found.add(outcome(1, 150), "")
    assert not any(event(1, 150, origin) in found for origin in ("a", "b", ""))


def test_more_than_there_is_room_for_is_said() -> None:
    found = DeliveredEvents("a", RANGE, 0)
    assert not found.is_full
    found.add(outcome(1, 150), "a")
    assert found.is_full
