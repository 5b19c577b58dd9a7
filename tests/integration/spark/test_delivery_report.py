"""The report of a day's deliveries; expected numbers are computed by hand."""

import json
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.contracts import DELIVERY_HOURS, QUARANTINE
from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.delivery_records import event_digest
from spark_jobs.jobs.delivery_report.job import DeliveryReport
from spark_jobs.tables import open_table, read_table
from tests.support.spark.raw_table import LoadedRecord, at, load_records

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

DAY = date(2026, 11, 21)
HERE, ELSEWHERE = "east", "west"


def delivery(
    offset: int, webhook: str, event: str, time: str, *, origin: str = HERE, body: bytes = b"{}"
) -> LoadedRecord:
    headers = {"event-id": event, "event-type": "order.paid", "origin": origin}
    return LoadedRecord("delivery_log", offset, at(time), webhook.encode(), body, headers)


def outcome(
    offset: int,
    place: int,
    outcome: str,
    time: str,
    delay_ms: int = 0,
    *,
    origin: str = HERE,
    digest: int | None = None,
    retries: str | None = None,
) -> LoadedRecord:
    """The outcome of the delivery at `place` in the log of `origin`, with event time `time`."""
    settled: datetime = at(time) + timedelta(milliseconds=delay_ms)
    members = {
        "partition": 0,
        "offset": place,
        "eventId": "evt",
        "outcome": outcome,
        "attempts": 1,
        "status": 200,
        "reason": None,
        "time": settled.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    if digest is not None:
        members["digest"] = f"{digest % 2**64:016x}"
    if retries is not None:
        members["retries"] = retries
    value = json.dumps(members).encode()
    return LoadedRecord("delivery_outcomes", offset, at(time), b"wh", value, {"origin": origin})


def replayed(
    offset: int,
    replay: str,
    webhook: str,
    start: int,
    epoch: int,
    time: str = "2026-11-21T12:00:00",
    **hours: tuple[int, int, int],
) -> LoadedRecord:
    """A replay outcome; an hour is `d21T08`, with counts delivered, duplicates, failed."""
    names = ("delivered", "duplicates", "failed")
    members = {
        "replayId": replay,
        "webhookId": webhook,
        "epoch": epoch,
        "start": start,
        "hours": {
            f"2026-11-{hour[1:]}": dict(zip(names, counts, strict=True))
            for hour, counts in hours.items()
        },
    }
    value = json.dumps(members).encode()
    return LoadedRecord("replay_outcomes", offset, at(time), webhook.encode(), value)


LOADED = [
    # Delivered after 1 s.
    delivery(0, "wh_a", "evt_1", "2026-11-21T08:00:00"),
    outcome(0, 0, "delivered", "2026-11-21T08:00:00", 1_000),
    # Failed, and delivered after a crash. Published twice: the first copy counts.
    delivery(1, "wh_a", "evt_2", "2026-11-21T08:10:00"),
    delivery(2, "wh_a", "evt_2", "2026-11-21T08:10:00"),
    outcome(1, 1, "failed", "2026-11-21T08:10:00", 2_000),
    outcome(2, 1, "delivered", "2026-11-21T08:10:00", 3_000),
    outcome(3, 2, "delivered", "2026-11-21T08:10:00", 5_000),
    # The last outcome of a position counts.
    delivery(3, "wh_a", "evt_3", "2026-11-21T08:20:00"),
    outcome(4, 3, "delivered", "2026-11-21T08:20:00", 9_000),
    outcome(5, 3, "failed", "2026-11-21T08:20:00", 9_500),
    # Without an outcome.
    delivery(4, "wh_a", "evt_4", "2026-11-21T08:30:00"),
    # Without the header origin: published here.
    delivery(5, "wh_a", "evt_5", "2026-11-21T08:40:00", origin=""),
    outcome(6, 5, "disabled", "2026-11-21T08:40:00"),
    delivery(6, "wh_a", "evt_6", "2026-11-21T09:00:00"),
    outcome(7, 6, "left", "2026-11-21T09:00:00"),
    # Mirrored twice; matched by its digest, not by its position, which is evt_3's here.
    delivery(7, "wh_b", "evt_7", "2026-11-21T08:00:00", origin=ELSEWHERE),
    delivery(8, "wh_b", "evt_7", "2026-11-21T08:00:00", origin=ELSEWHERE),
    outcome(
        *(8, 3, "delivered", "2026-11-21T08:00:00", 7_000),
        origin=ELSEWHERE,
        digest=event_digest("evt_7", b"{}"),
    ),
    # The other data centre has an old version without digests.
    delivery(9, "wh_b", "evt_8", "2026-11-21T08:01:00", origin=ELSEWHERE),
    outcome(9, 4, "delivered", "2026-11-21T08:01:00", 8_000, origin=ELSEWHERE),
    # The last of the day, with its outcome on the next day; and the first of the next day.
    delivery(10, "wh_b", "evt_9", "2026-11-21T23:59:59.999"),
    outcome(10, 10, "delivered", "2026-11-21T23:59:59.999", 20),
    delivery(11, "wh_b", "evt_10", "2026-11-22T00:00:00"),
    # The same id with another body is another event.
    delivery(12, "wh_a", "evt_1", "2026-11-21T08:05:00", body=b'{"n": 2}'),
    outcome(11, 12, "delivered", "2026-11-21T08:05:00", 2_000),
    # Of one start the highest epoch counts; replays on later days count, too.
    replayed(0, "rpl_1", "wh_a", 0, 1, d21T08=(1, 0, 0)),
    replayed(1, "rpl_1", "wh_a", 0, 2, d21T08=(7, 7, 7)),
    replayed(2, "rpl_1", "wh_a", 0, 2, d21T08=(2, 1, 1), d21T09=(1, 0, 0)),
    replayed(3, "rpl_1", "wh_a", 0, 1, d21T08=(50, 0, 0)),
    replayed(4, "rpl_1", "wh_a", 5, 2, d21T08=(1, 0, 0)),
    replayed(5, "rpl_2", "wh_c", 0, 1, "2026-11-23T01:00:00", d20T10=(9, 0, 0), d21T10=(4, 0, 0)),
    # Three unreadable records; the last one is in another day's report.
    LoadedRecord("delivery_log", 13, at("2026-11-21T08:50:00"), None, b"{}"),
    LoadedRecord("delivery_outcomes", 12, at("2026-11-21T08:51:00"), b"wh_a", b"garbage"),
    LoadedRecord("replay_outcomes", 6, at("2026-11-23T02:00:00"), b"wh_a", None),
]

HOURS = {
    # due, delivered, failed, left, disabled, unsettled, duplicates; replayed, failed, duplicates
    ("wh_a", 8): (6, 3, 1, 0, 1, 1, 1, 3, 1, 1, 2_000, 3_000),
    ("wh_a", 9): (1, 0, 0, 1, 0, 0, 0, 1, 0, 0, None, None),
    ("wh_b", 8): (2, 1, 0, 0, 0, 1, 1, 0, 0, 0, 7_000, 7_000),
    ("wh_b", 23): (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 20, 20),
    ("wh_c", 10): (0, 0, 0, 0, 0, 0, 0, 4, 0, 0, None, None),
}


def job(folder: Path) -> DeliveryReport:
    raw, hours, quarantine = (str(folder / name) for name in ("raw", "hours", "quarantine"))
    return DeliveryReport(raw, hours, quarantine, page=folder / "pages", origin=HERE)


def hours(spark: SparkSession, folder: Path, day: date) -> dict[tuple[str, int], tuple[Any, ...]]:
    rows = read_table(spark, str(folder / "hours"), DELIVERY_HOURS).collect()
    return {(row.webhookId, row.hour): tuple(row)[3:] for row in rows if row.date == day}


def test_a_day_is_reported_and_replaced_when_more_is_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOption, match="is empty"):
        job(tmp_path).write_day(spark, DAY)
    load_records(job(tmp_path).table, LOADED)
    job(tmp_path).write_day(spark, DAY + timedelta(days=1))
    written = job(tmp_path).write_day(spark, DAY)

    assert hours(spark, tmp_path, DAY) == HOURS
    report = written.report
    assert (report.webhooks, report.total.counts["owed"], written.unread) == (3, 10, 2)
    assert (report.total.delay_p50_ms, report.total.delay_p95_ms) == (2_000, 7_000)
    assert [report.hours[hour].counts["owed"] for hour in (8, 9, 10, 23)] == [8, 1, 0, 1]
    assert report.hours[8].delay_p50_ms == 2_000
    assert {name: each.undelivered for name, each in report.worst.items()} == {"wh_a": 4, "wh_b": 1}
    unread = read_table(spark, job(tmp_path).quarantine_table, QUARANTINE).collect()
    assert {(row.topic, row.offset, row.value) for row in unread} == {
        ("delivery_log", 13, b"{}"),
        ("delivery_outcomes", 12, b"garbage"),
    }
    head = open_table(job(tmp_path).report_table).head()
    assert head.position["source"]["version"] == 1

    version = load_records(
        job(tmp_path).table, [outcome(13, 4, "delivered", "2026-11-21T08:30:00", 60_000)]
    )
    again = job(tmp_path).write_day(spark, DAY).as_json()
    assert (again["delivered"], again["unsettled"], again["unread"]) == (6, 1, 2)
    settled = (6, 4, 1, 0, 1, 0, 1, 3, 1, 1, 2_000, 60_000)
    assert hours(spark, tmp_path, DAY) == HOURS | {("wh_a", 8): settled}
    assert hours(spark, tmp_path, DAY + timedelta(days=1)) == {
        ("wh_b", 0): (1, 0, 0, 0, 0, 1, 0, 0, 0, 0, None, None)
    }
    head = open_table(job(tmp_path).report_table).head()
    assert head.position == {
        "source": {"uri": f"file://{tmp_path}/raw", "version": version},
        "day": "2026-11-21",
        "job": "delivery-report",
    }
    assert (tmp_path / "pages/2026-11-22.html").exists()
    assert "2026-11-21.html" in (tmp_path / "pages/index.html").read_text()


def test_an_event_that_waits_for_a_scheduled_retry_is_unsettled_until_its_retries_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    at_eight, an_hour_ms = "2026-11-21T08:00:00", 3_600_000
    records = [delivery(place, "wh_a", f"evt_{place}", at_eight) for place in range(4)]
    records += [outcome(place, place, "failed", at_eight, 9, retries="pending") for place in (0, 1)]
    records += [
        outcome(2, 1, "delivered", at_eight, an_hour_ms, retries="ended"),
        # A live process that started again wrote that it waits, after the end.
        outcome(3, 2, "failed", at_eight, an_hour_ms, retries="ended"),
        outcome(4, 2, "failed", at_eight, an_hour_ms, retries="pending"),
        outcome(5, 3, "failed", at_eight, 9, retries="pending"),
        outcome(6, 3, "left", at_eight, an_hour_ms, retries="ended"),
    ]
    load_records(job(tmp_path).table, records)
    job(tmp_path).write_day(spark, DAY)
    assert hours(spark, tmp_path, DAY) == {
        ("wh_a", 8): (4, 1, 1, 1, 0, 1, 0, 0, 0, 0, an_hour_ms, an_hour_ms)
    }
