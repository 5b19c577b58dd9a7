"""What `logbroker audit` reads, shows and answers, by events that a test writes itself."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from logbroker.audit.audit_log import AuditLog, AuditTopicUnreadable
from logbroker.cli.formats import format_time
from logbroker.client.audit_format.report import (
    AuditRecord,
    PublishedReport,
    ReceivedCount,
    ReceivedReport,
    encode_published,
    encode_received,
)
from logbroker.client.audit_format.sequence_set import SequenceSet
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.logbroker_command import Run, logbroker_command
from tests.support.kafka.paper_group import make_topic
from tests.support.processes.waiting import DEADLINE_S

PARTITIONS = 3
MINUTE_MS = 60_000
DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1_000)
T0 = (NOW_MS - 3_600_000) // MINUTE_MS * MINUTE_MS
"""Where a window begins that has long ended."""


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    make_topic(broker.bootstrap_servers, "audit", PARTITIONS)
    return broker.bootstrap_servers


@pytest.fixture
def audit(servers: str) -> Run:
    return logbroker_command(servers, "audit")


def published(count: int, *, producer: str = "web/1", window_ms: int = T0) -> AuditRecord:
    window_end_ms = window_ms + MINUTE_MS
    event = PublishedReport("clicks", producer, window_ms, window_end_ms, SequenceSet(range(count)))
    (record,) = encode_published(event)
    return record


def received(count: int, *, producer: str = "web/1", window_ms: int = T0) -> AuditRecord:
    receipt = ReceivedCount("clicks", producer, window_ms, count, SequenceSet(range(count)))
    (record,) = encode_received(ReceivedReport("readers", "one", T0, [receipt]))
    return record


def write(servers: str, *records: AuditRecord, time_ms: int = T0 + 2 * MINUTE_MS) -> None:
    """Write events, one after the other over all partitions."""
    producer = Producer({"bootstrap.servers": servers})
    for number, record in enumerate(records):
        producer.produce("audit", record.value, record.key, number % PARTITIONS, timestamp=time_ms)
    assert producer.flush(DEADLINE_S) == 0


def rows(stdout: str) -> list[list[str]]:
    return [line.split() for line in stdout.splitlines()]


def test_rows_that_are_not_complete_are_shown_and_totals(servers: str, audit: Run) -> None:
    write(
        servers,
        *(published(10, producer=f"web/{n}") for n in range(3)),
        *(received(10, producer=f"web/{n}") for n in range(2)),
        received(8, producer="web/2"),
    )
    done = audit()
    assert (done.returncode, done.stderr) == (1, "")
    headings = ["PUBLISHED", "RECEIVED", "MISSING", "DUPLICATED", "UNCOVERED", "STATUS"]
    totals = [
        ["TOPIC", "TIER", "ROWS", "PENDING", *headings],
        ["clicks", "readers", "3", "0", "30", "28", "2", "0", "0", "missing"],
    ]
    window = format_time(T0)
    assert rows(done.stdout) == [
        ["TOPIC", "WINDOW", "PRODUCER", "TIER", *headings],
        ["clicks", window, "web/2", "readers", "10", "8", "2", "0", "0", "missing"],
        [],
        *totals,
    ]
    done = audit("--all")
    assert [row[2] for row in rows(done.stdout)[1:4]] == ["web/0", "web/1", "web/2"]
    assert rows(done.stdout)[-2:] == totals


def test_where_all_is_complete_only_totals_are_shown(servers: str, audit: Run) -> None:
    write(servers, published(10), received(10))
    done = audit()
    assert (done.returncode, done.stderr) == (0, "")
    assert [row[:3] for row in rows(done.stdout)] == [
        ["TOPIC", "TIER", "ROWS"],
        ["clicks", "readers", "1"],
    ]


def test_windows_of_a_time_and_the_last_day_without_one(servers: str, audit: Run) -> None:
    old_ms = T0 - 2 * DAY_MS
    write(servers, published(5, window_ms=old_ms), received(4, window_ms=old_ms), time_ms=old_ms)
    write(servers, published(7), received(7))
    assert audit().returncode == 0
    old = ("--from", format_time(old_ms), "--to", format_time(old_ms + 1))
    done = audit(*old)
    assert done.returncode == 1
    assert rows(done.stdout)[-1][4:7] == ["5", "4", "1"]
    # Without --from it is the day before --to.
    assert audit("--to", format_time(old_ms + 1)).stdout == done.stdout
    assert audit("--to", format_time(old_ms)).returncode == 0
    assert audit(*old, "--topic", "other").returncode == 0


def test_recent_reports_are_pending_and_counted_in_the_totals(servers: str, audit: Run) -> None:
    write(servers, published(5), received(4), time_ms=int(time.time() * 1_000))
    done = audit("--lateness-s", "3600")
    assert done.returncode == 0
    headings, total = rows(done.stdout)
    assert dict(zip(headings, total, strict=True))["PENDING"] == "1"
    assert total[-1] == "pending"
    row, *_ = rows(audit("--lateness-s", "3600", "--all").stdout)[1:]
    assert (row[1], row[-1]) == (format_time(T0), "pending")
    (listed,) = json.loads(audit("--lateness-s", "3600", "--json").stdout)["rows"]
    assert listed["status"] == "pending"
    assert audit("--lateness-s", "0").returncode == 1


def test_a_named_tier_without_reports_misses_everything(servers: str, audit: Run) -> None:
    write(servers, published(5))
    done = audit()
    assert done.returncode == 0
    assert "5 messages to topic 'clicks' are not compared" in done.stderr
    assert rows(done.stdout)[-1] == ["clicks", "-", "1", "0", "5", "0", "0", "0", "0", "unread"]
    done = audit("--tier", "silent")
    assert done.returncode == 1
    assert done.stderr == "logbroker: tier 'silent' has not reported anything\n"


def test_malformed_records_cause_a_warning_and_change_nothing(servers: str, audit: Run) -> None:
    garbage = [b"", b"\xff\x00", b"{}", b'{"kind":"received"}', b"[" * 100_000, b"null"]
    forged = published(1, producer="\x1b[2J")
    write(
        servers,
        published(5),
        *(AuditRecord(b"", value) for value in garbage),
        received(5),
        forged,
        published(3, window_ms=NOW_MS + DAY_MS),
    )
    done = audit("--all")
    assert done.returncode == 1  # the forged one, which was never received
    assert f"logbroker: {len(garbage)} records of the topic are not audit reports" in done.stderr
    assert "1 audit reports are about windows in the future" in done.stderr
    assert "\x1b" not in done.stdout
    assert "\N{REPLACEMENT CHARACTER}[2J" in done.stdout


def test_an_empty_topic_is_nothing_to_compare(audit: Run) -> None:
    done = audit()
    assert done.returncode == 0
    assert "nothing to compare" in done.stderr
    done = audit("--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["rows"], found["totals"], found["status"]) == ([], [], "complete")
    assert len(found["warnings"]) == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--audit-topic", "none"], "topic 'none' does not exist"),
        (["--bootstrap-servers", "127.0.0.1:1"], "no broker answers at 127.0.0.1:1"),
        (["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-02T00:00:00Z"], "is not before --to"),
        (["--from", "yesterday"], "invalid time"),
        (["--lateness-s", "-1"], "--lateness-s"),
        (["--client-config", "/nowhere"], "/nowhere"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_what_cannot_be_compared_ends_with_two(audit: Run, options: list[str], reason: str) -> None:
    done = audit(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_the_client_uses_the_properties_of_a_file(servers: str, audit: Run, tmp_path: Path) -> None:
    write(servers, published(5), received(5))
    properties = tmp_path / "client.properties"
    properties.write_text("# how to get in\n\nclient.id = auditor\n")
    assert audit("--client-config", str(properties)).returncode == 0
    for text, reason in (
        ("secret-without-a-name\n", "line 1 is malformed"),
        ("no.such.property=1\n", "no.such.property"),
    ):
        properties.write_text(text)
        done = audit("--client-config", str(properties))
        assert done.returncode == 2
        assert reason in done.stderr
        assert "secret" not in done.stderr


def test_reading_ends_where_the_topic_ended_at_the_start(servers: str) -> None:
    write(servers, *(published(n + 1) for n in range(10)))
    with AuditLog(servers, "audit", 0, {}) as log:
        assert log.records == 10
        write(servers, *(published(n + 1) for n in range(100)))
        entries = list(log.entries())
    assert sorted((entry.partition, entry.offset) for entry in entries) == [
        (number, offset) for number in range(PARTITIONS) for offset in range(3 + (number == 0))
    ]
    assert not log.begins_after_deletion


def test_reading_starts_at_a_time_and_reports_deleted_records(servers: str) -> None:
    write(servers, *[published(1)] * 6, time_ms=T0)
    write(servers, *[published(2)] * 6, time_ms=T0 + MINUTE_MS)
    with AuditLog(servers, "audit", T0 + 1, {}) as log:
        assert {(entry.offset, entry.time_ms) for entry in log.entries()} == {
            (offset, T0 + MINUTE_MS) for offset in (2, 3)
        }
        assert not log.begins_after_deletion
    with AuditLog(servers, "audit", T0 + MINUTE_MS + 1, {}) as log:
        assert (log.records, list(log.entries())) == (0, [])
    admin = AdminClient({"bootstrap.servers": servers})
    (deletion,) = admin.delete_records([TopicPartition("audit", 1, 1)]).values()
    deletion.result(DEADLINE_S)
    with AuditLog(servers, "audit", T0, {}) as log:
        assert log.begins_after_deletion
        assert log.records == 11


def test_a_mirrored_record_names_its_origin(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    reported: list[list[tuple[str, str | bytes | None]]] = [
        [],
        [("origin", b"east")],
        [("mirrored-from", b"cluster"), ("other", b"x")],
    ]
    for headers in reported:
        producer.produce("audit", b"{}", partition=0, headers=headers)
    assert producer.flush(DEADLINE_S) == 0
    with AuditLog(servers, "audit", 0, {}) as log:
        assert [entry.origin for entry in log.entries()] == ["", "east", "cluster"]


def test_a_lost_broker_is_an_error(broker: BrokerProcess, servers: str) -> None:
    write(servers, published(1))
    seconds = iter(range(0, 10_000, 20))
    with AuditLog(servers, "audit", 0, {}) as log:
        broker.kill()
        # On a clock that runs: it waits for half a minute, and this test does not.
        with pytest.raises(AuditTopicUnreadable, match="unfinished partitions: 0"):
            list(log.entries(lambda: float(next(seconds))))


def test_a_report_that_cannot_be_written_is_not_taken_for_a_loss(servers: str) -> None:
    write(servers, published(5), received(5))
    command = [sys.executable, "-m", "logbroker", "audit", "--bootstrap-servers", servers]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False
        )
    assert done.returncode not in (0, 1)
    assert "No space left on device" in done.stderr
