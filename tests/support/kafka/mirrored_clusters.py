"""Two brokers, mirror processes between them, and the records at both ends."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.http.scraped_metrics import scrape
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

READY: Final = "logbroker mirror ready"

SESSION_MS: Final = 3_000
"""The session timeout. The successor of a killed mirror waits for it."""

LONG_SESSION_MS: Final = 60_000
"""The session timeout of a mirror that must keep its partitions on a busy machine."""

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record with all its fields."""

    partition: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ClusterClient:
    """Writes and reads records with all fields. A context manager."""

    def __init__(self, servers: str, **settings: Any) -> None:
        self.servers = servers
        settings |= {"bootstrap.servers": servers, "log_level": 0}
        self.admin = AdminClient(settings)
        # Without idempotence, a retried request is stored after later ones.
        self._producer = Producer(settings | {"enable.idempotence": True})
        self._settings = settings

    def make_topic(self, topic: str, partitions: int, **settings: str) -> None:
        config = {name.replace("_", "."): value for name, value in settings.items()}
        new = NewTopic(topic, partitions, 1, config=config)
        self.admin.create_topics([new])[topic].result(DEADLINE_S)

    def write(self, topic: str, records: Iterable[Record]) -> None:
        errors: list[Any] = []
        for partition, time_ms, key, value, headers in records:
            self._producer.produce(
                topic,
                value,
                key,
                partition,
                timestamp=time_ms,
                headers=list(headers),
                on_delivery=lambda error, _: errors.append(error),
            )
        assert self._producer.flush(DEADLINE_S) == 0
        assert not any(errors), errors[:3]

    def read(self, topic: str) -> list[list[Record]]:
        """Return all current records by partition."""
        with closing(self._reader()) as reader:
            ends = self._ends(reader, topic)
            found: list[list[Record]] = [[] for _ in ends]
            reader.assign([TopicPartition(topic, number, 0) for number in range(len(ends))])
            reached = [0] * len(ends)
            while any(at < end for at, end in zip(reached, ends, strict=True)):
                for message in reader.consume(500, 1.0):
                    assert message.error() is None, message.error()
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None
                    assert offset is not None
                    found[partition].append(_record(message))
                    reached[partition] = offset + 1
        return found

    def ends(self, topic: str) -> list[int]:
        with closing(self._reader()) as reader:
            return self._ends(reader, topic)

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        with closing(self._reader(group)) as reader:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            return [max(0, each.offset) for each in reader.committed(places, DEADLINE_S)]

    def partitions(self, topic: str) -> int:
        topics = self.admin.list_topics(timeout=DEADLINE_S).topics
        return len(topics[topic].partitions) if topic in topics else 0

    def _reader(self, group: str = "looks-on") -> Consumer:
        return Consumer(self._settings | {"group.id": group, "enable.auto.commit": False})

    def _ends(self, reader: Consumer, topic: str) -> list[int]:
        places = [TopicPartition(topic, each) for each in range(self.partitions(topic))]
        return [reader.get_watermark_offsets(each, timeout=DEADLINE_S)[1] for each in places]


class MirrorProcess(ServerProcess):
    """`logbroker mirror`, with its metrics."""

    def __init__(
        self,
        folder: Path,
        source: str,
        destination: str,
        topics: str,
        *options: str,
        session_ms: int = SESSION_MS,
    ) -> None:
        folder.mkdir(exist_ok=True)
        properties = folder / "source.properties"
        properties.write_text(
            f"# who comes next waits for this\nsession.timeout.ms={session_ms}\n\n"
            "heartbeat.interval.ms = 300\n"
        )
        self._port = free_port()
        super().__init__(
            [
                *("-m", "logbroker", "mirror", "--from", source, "--to", destination),
                *("--topics", topics, "--metrics-port", str(self._port)),
                *("--from-config", str(properties), *options),
            ],
            folder / "mirror.log",
        )

    def serve(self) -> "MirrorProcess":
        self.start(READY)
        return self

    def metrics(self, name: str) -> Mapping[str, float]:
        """Return a metric's samples by their labels."""
        found: defaultdict[str, float] = defaultdict(float)
        for sample, value in scrape(self._port).items():
            full, _, labels = sample.partition("{")
            if full == f"logbroker_mirror_{name}":
                found[labels.rstrip("}")] += value
        return found

    def metric(self, name: str, **labels: object) -> float:
        """Return the sum of all samples with these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            value
            for sample, value in self.metrics(name).items()
            if all(each in sample for each in wanted)
        )


def until_copied(client: ClusterClient, topic: str, count: int) -> None:
    """Wait until a topic has at least `count` records."""
    until(lambda: sum(client.ends(topic)) >= count, f"{topic} has {count} records")


def without_repeats(values: Sequence[bytes]) -> list[bytes]:
    """Return the unique values in the order of first arrival."""
    return list(dict.fromkeys(values))


def _record(message: Any) -> Record:
    return Record(
        message.partition(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
