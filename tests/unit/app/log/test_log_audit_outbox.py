"""What is told to the audit reaches it sooner or later, and holds nobody up meanwhile."""

import logging
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.log.audit_outbox import RETRY_S, AuditOutbox, Settle
from logbroker.client.audit_event import AuditRecord

REFUSAL = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
PURGE = KafkaError(KafkaError._PURGE_QUEUE)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Log:
    """The log's end: takes records, and answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[AuditRecord] = []
        self.raises: BaseException | None = None
        self._settles: list[Settle] = []

    def take(self, record: AuditRecord, settle: Settle) -> None:
        if self.raises is not None:
            raise self.raises
        self.sent.append(record)
        self._settles.append(settle)

    def answer(self, error: KafkaError | None = None) -> None:
        """Answer everything that is under way."""
        settles, self._settles = self._settles, []
        for settle in settles:
            settle(error, None)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def lost() -> list[int]:
    return []


@pytest.fixture
def outbox(log: Log, lost: list[int]) -> AuditOutbox:
    return AuditOutbox(log.take, lost.append, bytes_max=100)


@pytest.fixture
def now_s() -> Callable[[], float]:
    """A clock by which each look comes late enough for another attempt."""
    times = iter(range(10**9, 2 * 10**9, int(RETRY_S) + 1))
    return lambda: next(times)


def records(*names: str) -> list[AuditRecord]:
    return [AuditRecord(b"key", name.encode()) for name in names]


def test_who_tells_waits_until_the_log_has_all_of_it(log: Log, outbox: AuditOutbox) -> None:
    told = outbox.add(records("a", "b"))
    assert log.sent == records("a", "b")
    assert (told.done(), outbox.waiting) == (False, 2)
    log.answer()
    assert (told.done(), outbox.waiting) == (True, 0)


def test_nothing_to_tell_is_told_at_once(outbox: AuditOutbox) -> None:
    assert outbox.add([]).done()


def test_nobody_waits_for_a_topic_that_takes_nothing_and_what_was_told_comes_later(
    log: Log,
    outbox: AuditOutbox,
    now_s: Callable[[], float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = outbox.add(records("a")), outbox.add(records("b"))
    with caplog.at_level(logging.ERROR):
        log.answer(REFUSAL)
        assert first.done()
        assert second.done()
        assert outbox.add(records("c")).done()
        # One is tried now and then, not all of them.
        outbox.retry(now_s())
        assert len(log.sent) == 3
        log.answer(REFUSAL)
    assert [record.message for record in caplog.records] == ["audit-not-taken"]
    outbox.retry(now_s())
    log.answer()
    # One was taken, so the others follow, and whoever tells waits again.
    log.answer()
    assert outbox.waiting == 0
    assert {record.value for record in log.sent} == {b"a", b"b", b"c"}
    assert not outbox.add(records("d")).done()


def test_while_one_attempt_is_under_way_no_other_begins(
    log: Log, outbox: AuditOutbox, now_s: Callable[[], float]
) -> None:
    outbox.add(records("a", "b"))
    log.answer(REFUSAL)
    outbox.retry(now_s())
    outbox.retry(now_s())
    assert len(log.sent) == 3


def test_it_is_not_tried_again_before_it_is_time(log: Log, outbox: AuditOutbox) -> None:
    outbox.add(records("a"))
    log.answer(REFUSAL)
    outbox.retry(0.0)
    assert len(log.sent) == 1


def test_of_too_much_the_oldest_is_given_up_and_counted(
    log: Log, outbox: AuditOutbox, lost: list[int], now_s: Callable[[], float]
) -> None:
    outbox.add(records("old"))
    log.answer(REFUSAL)
    outbox.add(records("new" * 29))
    outbox.add(records("newest"))
    assert sum(lost) == 1
    outbox.retry(now_s())
    log.answer()
    log.answer()
    assert [record.value for record in log.sent[1:]] == [b"new" * 29, b"newest"]


def test_a_record_that_no_attempt_would_bring_stands_in_nobodys_way(
    log: Log, outbox: AuditOutbox, lost: list[int]
) -> None:
    told = outbox.add(records("huge"))
    log.answer(TOO_LARGE)
    assert (told.done(), lost, outbox.waiting) == (True, [1], 0)
    assert not outbox.add(records("b")).done()


def test_what_a_client_that_is_replaced_had_is_sent_by_the_next(
    log: Log, outbox: AuditOutbox, now_s: Callable[[], float]
) -> None:
    told = outbox.add(records("a"))
    log.answer(PURGE)
    assert not told.done()
    outbox.retry(now_s())
    log.answer()
    assert told.done()
    assert log.sent == records("a", "a")


def test_a_client_that_is_full_gets_it_when_it_has_room(
    log: Log, outbox: AuditOutbox, now_s: Callable[[], float]
) -> None:
    log.raises = BufferError()
    told = outbox.add(records("a", "b"))
    assert not told.done()
    log.raises = None
    outbox.retry(now_s())
    log.answer()
    assert told.done()
    assert len(log.sent) == 2


def test_a_client_that_refuses_is_a_log_that_takes_nothing(log: Log, outbox: AuditOutbox) -> None:
    log.raises = KafkaException(REFUSAL)
    assert outbox.add(records("a")).done()
    assert outbox.is_refused
