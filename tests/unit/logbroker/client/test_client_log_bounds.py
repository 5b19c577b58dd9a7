"""The bounds of a log as its leader reports them; a leader that refuses one of the two requests."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException

from logbroker.client.log_bounds import fetch_all_bounds, fetch_bounds
from tests.support.kafka.scripted_broker import TOPIC, ScriptedBroker

INVALID_OFFSET = -1
ATTEMPTS = 10


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker(3, 4) as broker:
        yield broker


@pytest.fixture
def consumer(broker: ScriptedBroker) -> Iterator[Consumer]:
    settings = {**broker.properties, "group.id": "unused", "retry.backoff.ms": "10"}
    with closing(Consumer(settings)) as consumer:
        yield consumer


def test_bounds_are_those_of_the_log(consumer: Consumer) -> None:
    assert fetch_bounds(consumer, TOPIC, 0, 60) == (0, 7)
    assert fetch_all_bounds(consumer, TOPIC, [0], 60) == {0: (0, 7)}


@pytest.mark.parametrize("answered", [0, 1])
@pytest.mark.parametrize("failure", [{"error_code": 29}, {"offset": INVALID_OFFSET}])
def test_bounds_of_which_one_is_unknown_are_refused(
    broker: ScriptedBroker, consumer: Consumer, answered: int, failure: dict[str, int]
) -> None:
    """`Consumer.get_watermark_offsets` returns the other one for both in most attempts."""
    for _ in range(ATTEMPTS):
        broker.offsets.extend([{}] * answered)
        broker.offsets.append(failure)
        with pytest.raises(KafkaException):
            fetch_bounds(consumer, TOPIC, 0, 60)
        broker.offsets.clear()
