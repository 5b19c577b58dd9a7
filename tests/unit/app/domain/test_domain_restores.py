"""Restores: when a window has arrived in the log, and the text for users."""

import pytest

from app.domain.model import AwaitedRestore, Window
from app.domain.restores import all_arrived_by_ms, describe_awaited
from app.domain.windows import DAY_MS, MINUTE_MS

NOW_MS = 100 * DAY_MS
KEPT_MS = 6 * DAY_MS


@pytest.mark.parametrize(
    ("to_ms", "arrived_by_ms"),
    [
        # Late events are noted: see `LATENESS_S`, and five minutes for clocks.
        (NOW_MS, NOW_MS + 15 * MINUTE_MS),
        (NOW_MS - KEPT_MS + 1, NOW_MS - KEPT_MS + 1 + 15 * MINUTE_MS),
        # They are not any more, and may have come as long as the notes were kept.
        (NOW_MS - KEPT_MS, NOW_MS + 5 * MINUTE_MS),
        (40 * DAY_MS, 46 * DAY_MS + 5 * MINUTE_MS),
    ],
)
def test_a_window_has_arrived_when_no_late_events_can_follow(
    to_ms: int, arrived_by_ms: int
) -> None:
    window = Window(0, to_ms)
    found = all_arrived_by_ms(window, NOW_MS, lateness_ms=10 * MINUTE_MS, retention_ms=KEPT_MS)
    assert found == arrived_by_ms


def test_the_text_of_a_restore_names_missing_records() -> None:
    window = Window(1_795_000_000_000, 1_795_000_060_000)
    words = describe_awaited("wh_1", window, AwaitedRestore(3, 9))
    assert words == (
        "a restore: an operator must run `rewind-jobs restore` to restore the records of wh_1 "
        "from 2026-11-18T11:06:40.000Z to 2026-11-18T11:07:40.000Z"
    )
    text = describe_awaited("wh_1", window, AwaitedRestore(3, 9, missing="hour 5"))
    assert text == f"{words}; not found by the last run: hour 5"
