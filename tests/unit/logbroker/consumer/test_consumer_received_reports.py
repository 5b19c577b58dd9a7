import pytest

from logbroker.client import received_counter
from logbroker.client.audit_format.report import ReceivedReport, decode
from logbroker.consumer.fetching import Message
from logbroker.consumer.received_reports import StreamCounter


def message(*headers: tuple[str, bytes | None]) -> Message:
    return Message("clicks", 0, 7, None, b"value", 1_763_712_000_000, headers)


def test_a_message_is_counted_by_its_mark_and_one_without_is_not() -> None:
    counter = StreamCounter("billing", lambda: None)
    counter.count_message(message(("server", b"api-1"), ("audit", b"api-1/77:0:3")))
    counter.count_message(message())
    counter.count_message(message(("audit", None)))
    (record,) = counter.take_reports()
    event = decode(record.value)
    assert isinstance(event, ReceivedReport)
    assert event.tier == "billing"
    assert [(each.topic, each.count) for each in event.counts] == [("clicks", 1)]


def test_a_full_counter_calls_once_until_reports_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received_counter, "MEMORY_BYTES_MAX", 0)
    calls: list[bool] = []
    counter = StreamCounter("billing", lambda: calls.append(True))
    counter.count_message(message())
    assert not calls
    for _ in range(3_000):
        counter.count_message(message(("audit", b"api-1/77:0:3")))
    assert len(calls) == 1
    counter.take_reports()
    counter.count_message(message(("audit", b"api-1/77:0:3")))
    assert len(calls) == 2
