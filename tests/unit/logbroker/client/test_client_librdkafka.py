"""The reason why no broker is reachable is logged once, not with every attempt."""

import pytest
from confluent_kafka import KafkaError

from logbroker.client.librdkafka import REPEAT_AFTER_S, ErrorReporter, RepeatFilter

REFUSED = "sasl_ssl://kafka:9093/bootstrap: SASL authentication error: Authentication failed"


def error(reason: str, code: int = KafkaError._AUTHENTICATION) -> KafkaError:
    return KafkaError(code, reason)


@pytest.fixture
def messages() -> list[str]:
    return []


def test_an_error_is_reported_once_per_minute(messages: list[str]) -> None:
    now_s = 5.0
    heard = ErrorReporter(messages.append, lambda: now_s)
    for attempt in range(100):
        heard.report_error(error(f"{REFUSED} (after {attempt}ms in state AUTH_REQ)"))
    assert messages == [REFUSED]
    now_s += REPEAT_AFTER_S
    heard.report_error(error(REFUSED))
    assert messages == [REFUSED] * 2


def test_another_error_is_reported_immediately(messages: list[str]) -> None:
    heard = ErrorReporter(messages.append, lambda: 5.0)
    for reason in ("one", "two", "one", "two"):
        heard.report_error(error(reason))
    assert messages == ["one", "two"]


def test_that_all_brokers_are_away_is_no_reason(messages: list[str]) -> None:
    ErrorReporter(messages.append).report_error(
        error("1/1 brokers are down", KafkaError._ALL_BROKERS_DOWN)
    )
    assert messages == []


def test_what_is_remembered_is_bounded() -> None:
    reasons = RepeatFilter(lambda: 5.0)
    for number in range(10_000):
        assert reasons.pass_if_new(f"reason {number}") is not None
    assert len(reasons._reported_s) <= 100
