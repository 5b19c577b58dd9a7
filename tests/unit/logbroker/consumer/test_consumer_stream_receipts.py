import pytest

from logbroker.client import receipts as receipts_module
from logbroker.client.audit_event import Received, decode
from logbroker.consumer.fetching import Message
from logbroker.consumer.stream_receipts import StreamReceipts


def message(*headers: tuple[str, bytes | None]) -> Message:
    return Message("clicks", 0, 7, None, b"value", 1_763_712_000_000, headers)


def test_a_message_is_counted_by_its_mark_and_one_without_is_not() -> None:
    receipts = StreamReceipts("billing", "web-1/0", lambda: None)
    receipts.note(message(("server", b"api-1"), ("audit", b"api-1/77:0:3")))
    receipts.note(message())
    receipts.note(message(("audit", None)))
    (record,) = receipts.take()
    event = decode(record.value)
    assert isinstance(event, Received)
    assert (event.tier, event.consumer) == ("billing", "web-1/0")
    assert [(each.topic, each.count) for each in event.receipts] == [("clicks", 1)]


def test_it_tells_once_that_it_is_full_until_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts_module, "KEPT_BYTES_MAX", 0)
    told: list[bool] = []
    receipts = StreamReceipts("billing", "web-1/0", lambda: told.append(True))
    receipts.note(message())
    assert not told
    for _ in range(3_000):
        receipts.note(message(("audit", b"api-1/77:0:3")))
    assert len(told) == 1
    receipts.take()
    receipts.note(message(("audit", b"api-1/77:0:3")))
    assert len(told) == 2
