"""Receipts of a mirror that `audit` does not take at once: none is lost, or it is said."""

import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from logbroker.client.audit_mark import AUDIT_HEADER, AUDIT_TOPIC, Mark, encode_mark
from logbroker.client.receipts import ReceiptBook
from logbroker.mirror import receipts
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.mirror import Mirror
from logbroker.mirror.receipts import LOST, REASON, ReceiptPublisher
from logbroker.mirror.settings import Cluster, MirrorSettings
from tests.support.kafka.audit_counts import received
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
    """It takes no receipts until `take_again`."""
    source.change_topic(AUDIT_TOPIC, max_message_bytes="100")
    yield source
    take_again(source)


def take_again(source: BrokerProcess) -> None:
    source.change_topic(AUDIT_TOPIC, max_message_bytes=USUAL_BYTES)


def publisher_of(source: BrokerProcess) -> ReceiptPublisher:
    book = ReceiptBook("mirror@east", "one")
    return ReceiptPublisher(Cluster(source.bootstrap_servers), book, MirrorCounts())


def note(publisher: ReceiptPublisher, producer: str, sequence: int) -> None:
    publisher.book.note("orders", encode_mark(Mark(producer, TIME_MS, sequence)))


def publish(publisher: ReceiptPublisher) -> None:
    publisher.begin()
    until(publisher.is_settled, "receipts are taken or refused")


def told(source: BrokerProcess, producer: str) -> set[int]:
    """The messages of a producer that were told of as received."""
    places = received(source.bootstrap_servers)
    return {sequence for _, name, sequence in places if name == producer}


def test_what_is_counted_while_receipts_are_under_way_is_told_at_the_end(
    source: BrokerProcess,
) -> None:
    publisher = publisher_of(source)
    note(publisher, "stopped/1", 0)
    publisher.begin()
    note(publisher, "stopped/1", 1)
    until(publisher.finish, "receipts are taken")
    assert told(source, "stopped/1") == {0, 1}


def test_a_finish_that_is_not_answered_is_none(
    source: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "LAST_S", 0.2)
    publisher = publisher_of(source)
    note(publisher, "slow/1", 0)
    source.pause()
    try:
        assert not publisher.finish()
    finally:
        source.resume()
    until(publisher.finish, "receipts are taken")
    assert told(source, "slow/1") == {0}


def test_receipts_that_were_refused_for_long_are_all_told_at_the_end(
    refusing: BrokerProcess,
) -> None:
    publisher = publisher_of(refusing)
    for commit in range(300):
        note(publisher, "long/1", commit)
        publish(publisher)
    take_again(refusing)
    until(publisher.finish, "receipts are taken")
    assert told(refusing, "long/1") == set(range(300))


def test_receipts_that_are_given_up_are_named(
    refusing: BrokerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(receipts, "AGAIN_AFTER_S", 0.0)
    # As much as two of these events.
    monkeypatch.setattr(receipts, "UNPUBLISHED_BYTES_MAX", 600)
    counts = MirrorCounts()
    book = ReceiptBook("mirror@east", "one")
    publisher = ReceiptPublisher(Cluster(refusing.bootstrap_servers), book, counts)
    with caplog.at_level(logging.ERROR):
        for commit in range(3):
            note(publisher, "many/1", commit)
            publish(publisher)
        assert counts.errors[REASON] == 3
        assert counts.errors[LOST] == 1
        publisher.close()
        assert counts.errors[LOST] == 2
    assert "receipts lost topic=audit events=1" in caplog.messages
    assert "receipts lost topic=audit events=2" in caplog.messages
    take_again(refusing)
    until(publisher.finish, "receipts are taken")
    assert told(refusing, "many/1") == {1, 2}


def test_refused_receipts_outlive_a_change_of_topics_and_are_told_without_new_records(
    refusing: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "AGAIN_AFTER_S", 0.0)
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
            until(lambda: REASON in mirror.counts.errors, "receipts are refused")
            until_copied(ClusterClient(west.bootstrap_servers), "orders-1", len(marks))
            east.make_topic("orders-2", 1)
            until(lambda: ("orders-2", 0) in mirror.counts.lags, "another topic is copied")
            take_again(refusing)
            until(lambda: told(refusing, "idle/1") == set(range(100)), "all receipts are told")
        finally:
            mirror.stop()
            running.join()
