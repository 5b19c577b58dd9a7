"""Where a consumer continues when the broker refuses an offset."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import OFFSET_BEGINNING

from logbroker.client.errors import FetchFailed
from logbroker.consumer.fetching import Fetcher, Message, PartitionEnd, StreamAssignment
from logbroker.registry.zookeeper.lease import SessionLease
from tests.support.kafka.scripted_broker import TOPIC, ScriptedBroker
from tests.support.processes.waiting import DEADLINE_S, until

PRODUCE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker(3, 2, 2) as broker:
        # librdkafka does not fetch from a broker to which it could not produce.
        broker.versions[PRODUCE] = (3, 9)
        yield broker


class Reading:
    """The messages, failures and ends that a fetcher returns from one offset on."""

    def __init__(self, fetcher: Fetcher, start: int) -> None:
        lease = SessionLease(1, DEADLINE_S, sent_s=0.0)
        self._fetcher = fetcher
        self._assignment = StreamAssignment(TOPIC, {0: start}, lease)
        self.offsets: list[int] = []
        self.failures: list[FetchFailed] = []

    def until_end(self) -> None:
        until(self._has_reached_end, "the end of the partition")

    def _has_reached_end(self) -> bool:
        items = self._fetcher.fetch(self._assignment)
        self.offsets += [each.offset for each in items if isinstance(each, Message)]
        self.failures += [each for each in items if isinstance(each, FetchFailed)]
        return any(isinstance(each, PartitionEnd) for each in items)


def fetcher_of(broker: ScriptedBroker, reset: str) -> Fetcher:
    return Fetcher({**broker.properties, "retry.backoff.ms": "10", "auto.offset.reset": reset})


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_a_refused_offset_that_the_log_has_is_read_again(
    broker: ScriptedBroker, reset: str
) -> None:
    """So it is after an offset that librdkafka took from damaged bytes."""
    broker.fetches.extend([{}, {"error_code": OFFSET_OUT_OF_RANGE, "records": b""}])
    with closing(fetcher_of(broker, reset)) as fetcher:
        reading = Reading(fetcher, 0)
        reading.until_end()
    assert reading.offsets == list(range(broker.end))


def test_a_refused_offset_is_read_again_if_the_range_of_the_log_is_unknown(
    broker: ScriptedBroker,
) -> None:
    broker.fetches.extend([{}, {"error_code": OFFSET_OUT_OF_RANGE, "records": b""}])
    broker.offsets.append({"error_code": TOPIC_AUTHORIZATION_FAILED})
    with closing(fetcher_of(broker, "latest")) as fetcher:
        reading = Reading(fetcher, 0)
        reading.until_end()
    assert reading.offsets == list(range(broker.end))


@pytest.mark.parametrize(("reset", "offsets"), [("earliest", list(range(7))), ("latest", [])])
def test_an_offset_that_the_log_does_not_have_is_reset(
    broker: ScriptedBroker, reset: str, offsets: list[int]
) -> None:
    broker.fetches.append({"error_code": OFFSET_OUT_OF_RANGE, "records": b""})
    with closing(fetcher_of(broker, reset)) as fetcher:
        reading = Reading(fetcher, 1_000)
        reading.until_end()
    assert (reading.offsets, reading.failures) == (offsets, [])


@pytest.mark.parametrize(
    ("code", "failures"), [(TOPIC_AUTHORIZATION_FAILED, 1), (UNKNOWN_TOPIC_OR_PARTITION, 0)]
)
def test_a_start_that_is_not_found_is_looked_up_again(
    broker: ScriptedBroker, code: int, failures: int
) -> None:
    broker.offsets.append({"error_code": code})
    with closing(fetcher_of(broker, "latest")) as fetcher:
        reading = Reading(fetcher, OFFSET_BEGINNING)
        reading.until_end()
    assert reading.offsets == list(range(broker.end))
    assert len(reading.failures) == failures
