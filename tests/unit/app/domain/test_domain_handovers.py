import pytest

from app.domain.handovers import LiveHandover
from app.domain.model import OffsetRange, Window

HANDOVER = LiveHandover("rpl_1", "wh_1", OffsetRange(3, 10, 20), Window(5, 9), ("follow.*",), 0)


@pytest.mark.parametrize(
    ("event", "is_included"),
    [
        ((3, 10, 5, "follow.created"), True),
        ((3, 19, 8, "follow.created"), True),
        ((2, 10, 5, "follow.created"), False),
        ((3, 9, 5, "follow.created"), False),
        ((3, 20, 5, "follow.created"), False),
        ((3, 10, 4, "follow.created"), False),
        ((3, 10, 9, "follow.created"), False),
        ((3, 10, 5, "dm.sent"), False),
    ],
)
def test_a_handover_has_the_events_that_its_replay_selects(
    event: tuple[int, int, int, str], is_included: bool
) -> None:
    assert HANDOVER.includes(*event) is is_included
