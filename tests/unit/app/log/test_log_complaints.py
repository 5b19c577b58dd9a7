"""Why no broker is reached is told once for each reason, not with every attempt."""

import socket

import pytest
from confluent_kafka import Consumer, KafkaError
from processes import until

from app.log.complaints import AGAIN_AFTER_S, CLIENT_LOG, Complaints

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


def test_a_client_that_connects_in_vain_leaves_few_lines_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints: list[KafkaError] = []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        configuration = {
            "bootstrap.servers": f"127.0.0.1:{nobody.getsockname()[1]}",
            "group.id": "readers",
            "reconnect.backoff.ms": 1,
            "reconnect.backoff.max.ms": 1,
            "error_cb": complaints.append,
        }
        consumer = Consumer(configuration, logger=CLIENT_LOG)
        consumer.subscribe(["events"])
        until(lambda: consumer.poll(0.1) is None and len(complaints) > 20, "it tried twenty times")
        consumer.close()
    lines = [line for line in caplog.messages if "Connection refused" in line]
    assert 1 <= len(lines) <= 2


def test_other_lines_of_a_client_are_all_written(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        CLIENT_LOG.warning("GETPID [rewind-publisher#producer-1] [thrd:main]: no id was given")
    assert len(caplog.messages) == 2
