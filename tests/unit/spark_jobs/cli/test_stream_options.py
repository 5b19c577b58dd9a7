"""Options of streaming queries."""

import json
from typing import NamedTuple

import click
import pytest

from spark_jobs.cli.stream_options import BatchTotals, Duration, QueryOptions
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
def test_a_duration_has_sparks_notation(text: str, seconds: int) -> None:
    assert Duration(1).convert(text, None, None) == seconds


@pytest.mark.parametrize(
    "text", ["", "10", "minutes", "-1 minute", "1.5 hours", "0 seconds", "1 ms"]
)
def test_a_malformed_duration_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"not a duration|less than 1 s"):
        Duration(1).convert(text, None, None)


def query_options(trigger_s: int | None, *, available_now: bool) -> QueryOptions:
    return QueryOptions("c", available_now, trigger_s, "earliest", None, True, 8)


def test_a_query_runs_every_minute_by_default() -> None:
    assert query_options(None, available_now=False).run() == StreamRun("c", 60)
    assert query_options(5, available_now=False).run() == StreamRun("c", 5)
    assert query_options(None, available_now=True).run() == StreamRun("c", None)
    with pytest.raises(InvalidOption, match="--trigger"):
        query_options(5, available_now=True).run()


def join_with(within_s: int, watermark_s: int) -> DeliveryJoin:
    source, run = StreamSource({}), StreamRun("c", None)
    return DeliveryJoin(source, run, "t", "q", "local", within_s, watermark_s)


def test_a_join_requires_a_watermark_longer_than_its_wait() -> None:
    join_with(900, 1_200)
    with pytest.raises(InvalidOption, match="1199 s; allowed are at least"):
        join_with(900, 1_199)


class Batch(NamedTuple):
    batch: int
    seen: int
    late: int


def test_micro_batches_are_printed_and_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    totals = BatchTotals(Batch._fields[1:])
    totals.print_batch(Batch(0, 1_200, 0))
    totals.print_batch(Batch(1, 3, 2))
    totals.print_totals(as_json=False)
    totals.print_totals(as_json=True)
    out, err = capsys.readouterr()
    assert err.splitlines() == ["batch 0: 1,200 seen, 0 late", "batch 1: 3 seen, 2 late"]
    words, _, document = out.partition("\n")
    assert words == "2 batches, 1,203 seen, 2 late"
    assert json.loads(document) == {"batches": 2, "seen": 1_203, "late": 2}
