"""Consumer connectors as processes, and checks of the messages that they received."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka.admin import AdminClient, NewTopic

from logbroker.consumer import Producer
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

PROGRAM = "tests.support.kafka.paper_consumer"


class Handed(NamedTuple):
    """One message that a consumer recorded. `owner` names one claim of one stream."""

    noted_ns: int
    owner: tuple[str, int, int]
    partition: int
    offset: int
    value: str


class PaperConsumer(ServerProcess):
    """A process that reads a topic and records the messages."""

    def __init__(
        self,
        name: str,
        folder: Path,
        topic: str,
        *,
        streams: int = 1,
        stop_after: int = 0,
        **options: Any,
    ) -> None:
        self.name = name
        self._notes = folder / f"{name}.notes"
        given = options | {
            "streams": {topic: streams},
            "notes": str(self._notes),
            "stop_after": stop_after,
        }
        super().__init__(["-m", PROGRAM, json.dumps(given)], folder / f"{name}.log")

    def join(self) -> None:
        """Start the process and wait until it has tried to claim partitions."""
        self.start("consumer ready")

    def leave(self) -> None:
        """Shut down the process cleanly."""
        self.close_stdin()
        assert self.wait() == 0, self.output

    def until_stopped(self) -> None:
        """Wait until the process has stopped itself."""
        until(lambda: self._state() == "T", "the consumer has stopped itself")

    @property
    def handed(self) -> list[Handed]:
        """Return the messages received so far, in the order of each stream."""
        if not self._notes.exists():
            return []
        found = []
        # The last line may be incomplete.
        for line in self._notes.read_text().split("\n")[:-1]:
            noted_ns, stream, share, partition, offset, value = json.loads(line)
            found.append(Handed(noted_ns, (self.name, stream, share), partition, offset, value))
        return found


class Flow:
    """Sends messages with unique values to random partitions until it is stopped.

    A context manager: at its end it stops, and all that it sent is acknowledged.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.sent: set[str] = set()
        self._producer = Producer(bootstrap_servers)
        self._topic = topic
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.close()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                numbers = range(len(self.sent), len(self.sent) + 5)
                values = [f"{number}" for number in numbers]
                sending = self._producer.send(self._topic, [each.encode() for each in values])
                sending.result(DEADLINE_S)
                self.sent.update(values)
        except BaseException as failure:
            self._failure = failure


def make_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create a topic with all partitions on one broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)


def until_handed(wanted: Iterable[str], consumers: Iterable[PaperConsumer]) -> None:
    """Wait until the consumers have received the values."""
    missing = set(wanted)
    everybody = list(consumers)

    def nothing_is_missing() -> bool:
        missing.difference_update(values(everybody))
        return not missing

    until(nothing_is_missing, "every message is handed to somebody")


def values(consumers: Iterable[PaperConsumer]) -> set[str]:
    """Return all different values that the consumers received."""
    return {each.value for consumer in consumers for each in consumer.handed}


def check_deliveries(consumers: Iterable[PaperConsumer]) -> None:
    """Assert the guarantees of a group for every partition.

    Every owner is handed it in order and without a gap, from where owners before it had got to
    or earlier, and never from before where those began; and it is handed to one owner at a time.
    """
    for handed in _by_partition(consumers).values():
        _check_order(handed)
        _check_turns(handed)


def _by_partition(consumers: Iterable[PaperConsumer]) -> dict[int, list[Handed]]:
    found = defaultdict(list)
    for consumer in consumers:
        for each in consumer.handed:
            found[each.partition].append(each)
    return {partition: sorted(handed) for partition, handed in found.items()}


def _check_order(handed: list[Handed]) -> None:
    reached, last_start = 0, 0
    by_owner = defaultdict(list)
    for each in handed:
        by_owner[each.owner].append(each)
    for owner, own in sorted(by_owner.items(), key=lambda item: item[1][0].noted_ns):
        offsets = [each.offset for each in own]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), (owner, offsets)
        assert last_start <= offsets[0] <= reached, (owner, offsets[0], last_start, reached)
        last_start = offsets[0]
        reached = max(reached, offsets[-1] + 1)


def _check_turns(handed: list[Handed]) -> None:
    over = set()
    for before, after in pairwise(handed):
        if after.owner != before.owner:
            over.add(before.owner)
            assert after.owner not in over, (before, after)
