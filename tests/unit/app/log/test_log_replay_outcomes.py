"""The records that tell what a stretch of a replay brought."""

import json

from hypothesis import given
from hypothesis import strategies as st

from app.domain.hours import HOUR_MS, count_by_hour, format_hour
from app.domain.model import Counts
from app.domain.options import Source
from app.log.replay_outcomes import ReplayOutcome, encode_replay_outcome

BROUGHT = ReplayOutcome(
    replay_id="rpl_1",
    webhook_id="wh_1",
    origin="east",
    source=Source.ARCHIVE,
    epoch=2,
    start=120_400,
    end=137_305,
    time_ms=1_795_248_602_000,
    hours={498_674: Counts(4_070, 12, 1), 498_673: Counts(duplicates=3)},
)


def test_an_outcome_is_written_as_its_page_says() -> None:
    assert json.loads(encode_replay_outcome(BROUGHT)) == {
        "replayId": "rpl_1",
        "webhookId": "wh_1",
        "origin": "east",
        "source": "archive",
        "epoch": 2,
        "start": 120_400,
        "end": 137_305,
        "hours": {
            "2026-11-21T01": {"delivered": 0, "duplicates": 3, "failed": 0},
            "2026-11-21T02": {"delivered": 4_070, "duplicates": 12, "failed": 1},
        },
        "time": "2026-11-21T08:10:02.000Z",
    }


@given(st.lists(st.integers(0, 10 * HOUR_MS)))
def test_a_tally_counts_every_time_in_its_hour(times_ms: list[int]) -> None:
    counted = count_by_hour(times_ms)
    assert counted == {
        hour: sum(hour * HOUR_MS <= each < (hour + 1) * HOUR_MS for each in times_ms)
        for hour in range(11)
        if any(each // HOUR_MS == hour for each in times_ms)
    }
    assert all(format_hour(hour) == f"1970-01-01T{hour:02}" for hour in counted)
