"""What clients say of brokers that they do not reach is in the log of the service, once."""

import socket

import pytest
from confluent_kafka import Consumer, KafkaError

from app.log.client_errors import CLIENT_ERRORS, CLIENT_LOG
from tests.support.processes.waiting import until


def test_a_complaint_is_written_for_operators(caplog: pytest.LogCaptureFixture) -> None:
    CLIENT_ERRORS.report_error(KafkaError(KafkaError._AUTHENTICATION, "kafka:9093: wrong password"))
    assert caplog.messages == ["log client: kafka:9093: wrong password"]


def test_a_client_that_cannot_connect_logs_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    complaints: list[KafkaError] = []
    with socket.socket() as closed_port:
        closed_port.bind(("127.0.0.1", 0))
        configuration = {
            "bootstrap.servers": f"127.0.0.1:{closed_port.getsockname()[1]}",
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
