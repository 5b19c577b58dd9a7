"""What a user may ask of streaming queries."""

import json
from typing import NamedTuple

import click
import pytest

from spark_jobs.cli.stream_options import BatchTotals, Duration, stream_run
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.delivery_join import DeliveryJoin
from spark_jobs.jobs.streaming import StreamRun, StreamSource


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 minutes", 600),
        ("1 minute", 60),
        (" 90 seconds ", 90),
        ("2days", 172_800),
        ("1 hour", 3_600),
    ],
)
def test_a_duration_is_written_as_spark_has_it(text: str, seconds: int) -> None:
    assert Duration(1).convert(text, None, None) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "minutes", "-1 minute", "1.5 hours", "0 seconds", "1 ms"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"no duration|less than 1 s"):
        Duration(1).convert(text, None, None)


def test_a_query_goes_on_each_minute_unless_it_is_told_otherwise() -> None:
    assert stream_run("c", None, available_now=False) == StreamRun("c", 60)
    assert stream_run("c", 5, available_now=False) == StreamRun("c", 5)
    assert stream_run("c", None, available_now=True) == StreamRun("c", None)
    with pytest.raises(InvalidOption, match="--trigger"):
        stream_run("c", 5, available_now=True)


def join_with(within_s: int, watermark_s: int) -> DeliveryJoin:
    source, run = StreamSource({}), StreamRun("c", None)
    return DeliveryJoin(source, run, "t", "q", "local", within_s, watermark_s)


def test_a_join_forgets_no_outcome_that_could_count_again() -> None:
    join_with(900, 1_200)
    with pytest.raises(InvalidOption, match="1199 s"):
        join_with(900, 1_199)


class Batch(NamedTuple):
    batch: int
    seen: int
    late: int


def test_micro_batches_are_told_one_by_one_and_together(capsys: pytest.CaptureFixture[str]) -> None:
    totals = BatchTotals(Batch._fields[1:])
    totals.tell(Batch(0, 1_200, 0))
    totals.tell(Batch(1, 3, 2))
    totals.show(as_json=False)
    totals.show(as_json=True)
    out, err = capsys.readouterr()
    assert err.splitlines() == ["batch 0: 1,200 seen, 0 late", "batch 1: 3 seen, 2 late"]
    words, _, document = out.partition("\n")
    assert words == "2 batches, 1,203 seen, 2 late"
    assert json.loads(document) == {"batches": 2, "seen": 1_203, "late": 2}
