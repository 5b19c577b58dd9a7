"""The audit comparison in Spark, with numbers computed by hand."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from logbroker.client.audit_format.mark import Mark
from logbroker.client.audit_format.report import PublishedReport, encode_published
from logbroker.client.audit_format.sequence_set import SequenceSet
from spark_jobs.contracts import RECORDS
from spark_jobs.jobs.audit_comparison import AuditScope, compare
from tests.support.kafka.audit_marks import encode_mark

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

WINDOW_MS = 1_795_000_020_000 // 60_000 * 60_000
LOADED_MS = WINDOW_MS + 3_600_000
MANY = 70_000
SCOPE = AuditScope(WINDOW_MS, WINDOW_MS + 600_000, {"events": LOADED_MS}, lateness_ms=60_000)


def record(topic: str, offset: int, time_ms: int, **columns: Any) -> tuple[Any, ...]:
    time = datetime.fromtimestamp(time_ms / 1_000, UTC)
    values = {"value": None, "headers": None} | columns
    return (
        *(topic, 0, offset, time, 0, None, values["value"], values["headers"], None),
        *(date(2026, 1, 1), 0),
    )


def marked(
    spark: SparkSession, sequences: Mapping[tuple[str, int], Iterable[int]], topic: str = "events"
) -> DataFrame:
    """Loaded records with marks, by producer and window."""
    headers = [
        [("server", b"s"), ("audit", encode_mark(Mark(producer, window_ms, number)))]
        for (producer, window_ms), numbers in sequences.items()
        for number in numbers
    ]
    rows = [record(topic, n, WINDOW_MS, headers=each) for n, each in enumerate(headers)]
    return spark.createDataFrame(rows, RECORDS)


def audit_reports(
    spark: SparkSession, *events: tuple[PublishedReport, int, str | None]
) -> DataFrame:
    """Loaded audit reports, each with its time and data centre."""
    rows = [
        record(
            "audit",
            offset,
            reported_ms,
            value=each.value,
            headers=[("origin", origin.encode())] if origin else None,
        )
        for offset, (event, reported_ms, origin) in enumerate(events)
        for each in encode_published(event)
    ]
    return spark.createDataFrame([*rows, record("audit", 99, WINDOW_MS, value=b"{}")], RECORDS)


def published(producer: str, numbers: Iterable[int], **other: Any) -> PublishedReport:
    window_ms = other.get("window_ms", WINDOW_MS)
    topic = other.get("topic", "events")
    return PublishedReport(topic, producer, window_ms, window_ms + 60_000, SequenceSet(numbers))


def test_each_window_is_compared_message_by_message(spark: SparkSession) -> None:
    later_ms, early_ms = WINDOW_MS + 60_000, LOADED_MS - 200_000
    lost = {0, 32_767, 32_768, MANY - 1}
    records = marked(
        spark,
        {
            # Four are lost and three duplicated: the counts differ only by one.
            ("a/1", WINDOW_MS): [*(n for n in range(MANY) if n not in lost), 5, 6, 7],
            ("a/1", later_ms): range(3),
            # Its producer died before it could report all.
            ("dead/1", WINDOW_MS): range(4),
            ("young/1", WINDOW_MS): range(2),
            # Out of scope.
            ("a/1", WINDOW_MS - 60_000): range(9),
        },
    )
    events = audit_reports(
        spark,
        # In two parts, and one of them twice.
        (published("a/1", range(40_000)), early_ms, None),
        (published("a/1", range(30_000, MANY)), early_ms, None),
        (published("a/1", range(30_000, MANY)), early_ms, None),
        (published("a/1", range(3), window_ms=later_ms), early_ms, None),
        (published("dead/1", range(3)), early_ms, None),
        (published("young/1", range(3)), LOADED_MS - 1_000, None),
        # Copied by a mirror that does not copy the records.
        (published("far/1", range(8)), early_ms, "west"),
        (published("a/1", range(8), topic="other"), early_ms, None),
    )

    found = [row.asDict() for row in compare(records, events, SCOPE).collect()]

    rows = {(row["producer"], row["window"].timestamp() * 1_000): row for row in found}
    counts = ("published", "loaded", "missing", "duplicated", "uncovered", "status")
    assert {key: tuple(row[name] for name in counts) for key, row in rows.items()} == {
        ("a/1", WINDOW_MS): (MANY, MANY - 4, 4, 3, 0, "missing"),
        ("a/1", later_ms): (3, 3, 0, 0, 0, "complete"),
        ("dead/1", WINDOW_MS): (3, 4, 0, 0, 1, "uncovered"),
        ("young/1", WINDOW_MS): (3, 2, 1, 0, 0, "pending"),
    }
    assert {row["topic"] for row in found} == {"events"}


def test_mirrored_messages_are_expected_once_some_are_loaded(
    spark: SparkSession,
) -> None:
    records = marked(spark, {("far/1", WINDOW_MS): [0]})
    events = audit_reports(
        spark,
        (published("far/1", range(2)), WINDOW_MS + 70_000, "west"),
        (published("near/1", range(5)), WINDOW_MS + 70_000, None),
    )
    found = {row["producer"]: row for row in compare(records, events, SCOPE).collect()}
    assert (found["far/1"]["missing"], found["far/1"]["status"]) == (1, "missing")
    # Local messages are always expected.
    assert (found["near/1"]["missing"], found["near/1"]["loaded"]) == (5, 0)
