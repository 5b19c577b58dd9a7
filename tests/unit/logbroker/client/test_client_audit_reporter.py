"""Audit reports are written in the end, and delay nothing meanwhile."""

import logging
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from logbroker.client.audit_format.report import AuditRecord
from logbroker.client.audit_reporter import RETRY_S, UNSENDABLE, AuditReporter, OnDelivery

REFUSAL = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
PURGE = KafkaError(KafkaError._PURGE_QUEUE)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Log:
    """Accepts records, and answers on demand."""

    def __init__(self) -> None:
        self.sent: list[AuditRecord] = []
        self.raises: BaseException | None = None
        self._callbacks: list[OnDelivery] = []

    def produce(self, record: AuditRecord, on_delivery: OnDelivery) -> None:
        if self.raises is not None:
            raise self.raises
        self.sent.append(record)
        self._callbacks.append(on_delivery)

    def answer(self, error: KafkaError | None = None) -> None:
        """Answer everything in flight."""
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(error, None)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def dropped() -> list[int]:
    return []


@pytest.fixture
def reporter(log: Log, dropped: list[int]) -> AuditReporter:
    return AuditReporter(log.produce, on_dropped=dropped.append, bytes_max=100, drop_on=UNSENDABLE)


@pytest.fixture
def now_s() -> Callable[[], float]:
    """A clock that advances by more than the retry interval."""
    times = iter(range(10**9, 2 * 10**9, int(RETRY_S) + 1))
    return lambda: next(times)


def records(*names: str) -> list[AuditRecord]:
    return [AuditRecord(b"key", name.encode()) for name in names]


def test_a_caller_waits_until_all_records_are_acknowledged(
    log: Log, reporter: AuditReporter
) -> None:
    done = reporter.add(records("a", "b"))
    assert log.sent == records("a", "b")
    assert (done.done(), reporter.pending) == (False, 2)
    log.answer()
    assert (done.done(), reporter.pending) == (True, 0)


def test_an_empty_report_is_done_at_once(reporter: AuditReporter) -> None:
    assert reporter.add([]).done()


def test_callers_do_not_wait_for_a_topic_that_rejects_records_and_all_are_retried(
    log: Log,
    reporter: AuditReporter,
    now_s: Callable[[], float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = reporter.add(records("a")), reporter.add(records("b"))
    with caplog.at_level(logging.ERROR):
        log.answer(REFUSAL)
        assert first.done()
        assert second.done()
        assert reporter.add(records("c")).done()
        # A retry sends one record, not all.
        reporter.retry(now_s())
        assert len(log.sent) == 3
        log.answer(REFUSAL)
    assert [record.message for record in caplog.records] == [
        "audit-reports-refused reason=" + REFUSAL.str()
    ]
    reporter.retry(now_s())
    log.answer()
    # One is acknowledged, so the others follow, and callers wait again.
    log.answer()
    assert reporter.pending == 0
    assert {record.value for record in log.sent} == {b"a", b"b", b"c"}
    assert not reporter.add(records("d")).done()


def test_retries_do_not_overlap(
    log: Log, reporter: AuditReporter, now_s: Callable[[], float]
) -> None:
    reporter.add(records("a", "b"))
    log.answer(REFUSAL)
    reporter.retry(now_s())
    reporter.retry(now_s())
    assert len(log.sent) == 3


def test_no_retry_before_it_is_due(log: Log, reporter: AuditReporter) -> None:
    reporter.add(records("a"))
    log.answer(REFUSAL)
    reporter.retry(0.0)
    assert len(log.sent) == 1


def test_above_the_size_limit_the_oldest_are_dropped_and_counted(
    log: Log, reporter: AuditReporter, dropped: list[int], now_s: Callable[[], float]
) -> None:
    reporter.add(records("old"))
    log.answer(REFUSAL)
    reporter.add(records("new" * 29))
    reporter.add(records("newest"))
    assert sum(dropped) == 1
    reporter.retry(now_s())
    log.answer()
    log.answer()
    assert [record.value for record in log.sent[1:]] == [b"new" * 29, b"newest"]


def test_an_unsendable_record_is_dropped_and_blocks_nothing(
    log: Log, reporter: AuditReporter, dropped: list[int]
) -> None:
    done = reporter.add(records("huge"))
    log.answer(TOO_LARGE)
    assert (done.done(), dropped, reporter.pending) == (True, [1], 0)
    assert not reporter.add(records("b")).done()


def test_records_purged_from_a_replaced_client_are_sent_again(
    log: Log, reporter: AuditReporter, now_s: Callable[[], float]
) -> None:
    done = reporter.add(records("a"))
    log.answer(PURGE)
    assert not done.done()
    reporter.retry(now_s())
    log.answer()
    assert done.done()
    assert log.sent == records("a", "a")


def test_records_wait_while_the_queue_of_the_client_is_full(
    log: Log, reporter: AuditReporter, now_s: Callable[[], float]
) -> None:
    log.raises = BufferError()
    done = reporter.add(records("a", "b"))
    assert not done.done()
    log.raises = None
    reporter.retry(now_s())
    log.answer()
    assert done.done()
    assert len(log.sent) == 2


def test_an_exception_of_the_client_counts_as_a_refusal(log: Log, reporter: AuditReporter) -> None:
    log.raises = KafkaException(REFUSAL)
    assert reporter.add(records("a")).done()
    assert reporter.is_refused
