"""Audit reports of a mirror while `audit` rejects them: none is lost, or the loss is logged."""

import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from logbroker.client import audit_reporter, received_counter
from logbroker.client.audit_format.mark import AUDIT_HEADER, AUDIT_TOPIC, Mark
from logbroker.client.received_counter import ReceivedCounter
from logbroker.mirror import received_reports
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.mirror import Mirror
from logbroker.mirror.received_reports import DROPPED, REFUSED, MirrorReports
from logbroker.mirror.settings import Cluster, MirrorSettings
from tests.support.kafka.audit_counts import received
from tests.support.kafka.audit_marks import encode_mark
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import ClusterClient, Record, until_copied
from tests.support.processes.waiting import until

pytestmark = pytest.mark.xdist_group("mirror")

TIME_MS = 1_763_712_000_000
OPTIONS = ("--group-initial-rebalance-delay-ms", "0")
USUAL_BYTES = "1000000"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("source")
    with BrokerProcess(folder / "log", *OPTIONS, name="source") as broker:
        broker.serve().make_topic(AUDIT_TOPIC)
        yield broker


@pytest.fixture
def refusing(source: BrokerProcess) -> Iterator[BrokerProcess]:
    """Rejects reports until `accept_reports`."""
    source.change_topic(AUDIT_TOPIC, max_message_bytes="100")
    yield source
    accept_reports(source)


def accept_reports(source: BrokerProcess) -> None:
    source.change_topic(AUDIT_TOPIC, max_message_bytes=USUAL_BYTES)


def reports_of(source: BrokerProcess) -> MirrorReports:
    counter = ReceivedCounter("mirror@east", "one")
    return MirrorReports(Cluster(source.bootstrap_servers), counter, MirrorCounts())


def count(reports: MirrorReports, producer: str, sequence: int) -> None:
    reports.counter.count_message("orders", encode_mark(Mark(producer, TIME_MS, sequence)))


def report(reports: MirrorReports) -> None:
    reports.start()
    until(reports.is_settled, "reports are acknowledged or rejected")


def reported(source: BrokerProcess, producer: str) -> set[int]:
    """The messages of a producer that were reported as received."""
    places = received(source.bootstrap_servers)
    return {sequence for _, name, sequence in places if name == producer}


def test_messages_counted_while_a_report_is_in_flight_are_reported_by_finish(
    source: BrokerProcess,
) -> None:
    reports = reports_of(source)
    count(reports, "stopped/1", 0)
    reports.start()
    count(reports, "stopped/1", 1)
    until(reports.finish, "reports are acknowledged")
    assert reported(source, "stopped/1") == {0, 1}


def test_finish_returns_false_without_an_answer(
    source: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_reports, "FINISH_S", 0.2)
    reports = reports_of(source)
    count(reports, "slow/1", 0)
    source.pause()
    try:
        assert not reports.finish()
    finally:
        source.resume()
    until(reports.finish, "reports are acknowledged")
    assert reported(source, "slow/1") == {0}


def test_reports_rejected_for_long_are_all_written_by_finish(
    refusing: BrokerProcess,
) -> None:
    reports = reports_of(refusing)
    for commit in range(300):
        count(reports, "long/1", commit)
        report(reports)
    accept_reports(refusing)
    until(reports.finish, "reports are acknowledged")
    assert reported(refusing, "long/1") == set(range(300))


def test_dropped_reports_are_counted_and_logged(
    refusing: BrokerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_reporter, "RETRY_S", 0.0)
    monkeypatch.setattr(received_counter, "MEMORY_BYTES_MAX", 0)
    # The size of two of these reports.
    monkeypatch.setattr(received_reports, "BYTES_MAX", 600)
    counts = MirrorCounts()
    counter = ReceivedCounter("mirror@east", "one")
    reports = MirrorReports(Cluster(refusing.bootstrap_servers), counter, counts)
    with caplog.at_level(logging.ERROR):
        for commit in range(3):
            count(reports, "many/1", commit)
            report(reports)
        assert counts.errors[REFUSED] == 3
        assert counts.errors[DROPPED] == 1
        reports.close()
        assert counts.errors[DROPPED] == 2
    dropped = [each for each in caplog.messages if each.startswith("audit-reports-dropped")]
    assert [each.split(maxsplit=2)[1:] for each in dropped] == [
        ["records=1", "reason=too many unacknowledged reports"],
        ["records=2", "reason=shutdown"],
    ]
    accept_reports(refusing)
    until(reports.finish, "reports are acknowledged")
    assert reported(refusing, "many/1") == {1, 2}


def test_rejected_reports_survive_a_change_of_topics_and_need_no_new_records(
    refusing: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_reporter, "RETRY_S", 0.0)
    east = ClusterClient(refusing.bootstrap_servers)
    east.make_topic("orders-1", 1)
    marks = [encode_mark(Mark("idle/1", TIME_MS, number)) for number in range(100)]
    east.write(
        "orders-1", [Record(0, TIME_MS, None, b".", ((AUDIT_HEADER, mark),)) for mark in marks]
    )
    with BrokerProcess(tmp_path / "west", *OPTIONS, name="west") as west:
        settings = MirrorSettings(
            Cluster(east.servers), Cluster(west.serve().bootstrap_servers), ("^orders-.*",), "east"
        )
        mirror = Mirror(settings, lambda: None)
        running = Thread(target=mirror.run)
        running.start()
        try:
            until(lambda: REFUSED in mirror.counts.errors, "reports are rejected")
            until_copied(ClusterClient(west.bootstrap_servers), "orders-1", len(marks))
            east.make_topic("orders-2", 1)
            until(lambda: ("orders-2", 0) in mirror.counts.lags, "another topic is copied")
            accept_reports(refusing)
            until(lambda: reported(refusing, "idle/1") == set(range(100)), "everything is reported")
        finally:
            mirror.stop()
            running.join()
