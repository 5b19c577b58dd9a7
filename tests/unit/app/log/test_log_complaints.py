"""Why no broker is reached is told once for each reason, not with every attempt."""

import pytest
from confluent_kafka import KafkaError

from app.log.complaints import AGAIN_AFTER_S, Complaints

REFUSED = "sasl_ssl://kafka:9093/bootstrap: SASL authentication error: Authentication failed"


def error(reason: str, code: int = KafkaError._AUTHENTICATION) -> KafkaError:
    return KafkaError(code, reason)


def test_a_reason_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 5.0
    heard = Complaints(lambda: now_s)
    for attempt in range(100):
        heard.note(error(f"{REFUSED} (after {attempt}ms in state AUTH_REQ)"))
    assert caplog.messages == [f"log client: {REFUSED}"]
    now_s += AGAIN_AFTER_S
    heard.note(error(REFUSED))
    assert caplog.messages == [f"log client: {REFUSED}"] * 2


def test_another_reason_is_told_at_once(caplog: pytest.LogCaptureFixture) -> None:
    heard = Complaints(lambda: 5.0)
    for reason in ("one", "two", "one", "two"):
        heard.note(error(reason))
    assert caplog.messages == ["log client: one", "log client: two"]


def test_that_all_brokers_are_away_is_no_reason(caplog: pytest.LogCaptureFixture) -> None:
    Complaints().note(error("1/1 brokers are down", KafkaError._ALL_BROKERS_DOWN))
    assert caplog.messages == []


def test_what_is_remembered_is_bounded() -> None:
    heard = Complaints(lambda: 5.0)
    for number in range(10_000):
        heard.note(error(f"reason {number}"))
    assert len(heard._told_s) <= 100
