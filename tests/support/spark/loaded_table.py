"""A log and a table that is loaded from it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from spark_jobs.jobs.load import LoadRequest, load
from spark_jobs.jobs.load_report import LoadReport
from spark_jobs.offsets.limits import Subscribed
from spark_jobs.tables import DataFile, Table, open_table
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.spark.spark_session import JobProcess

BEGIN_MS = 1_790_000_000_000
"""When the first record happened; as it happens not at a full hour."""

Header = tuple[str, bytes | None]


class LogRecord(NamedTuple):
    """A record of the log or of the table."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] | None


class LoadScene:
    """Topics of one broker, and one table in a folder."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.folder = folder
        self.table_folder = folder / "table"
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._published = 0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._publishing: threading.Thread | None = None

    @property
    def table(self) -> Table:
        return open_table(str(self.table_folder))

    def make_topic(self, topic: str = "orders", partitions: int = 2, **settings: str) -> None:
        """Create a topic; settings have Kafka's names with `_` instead of dots."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(
            DEADLINE_S
        )

    def delete_topic(self, topic: str = "orders") -> None:
        self.admin.delete_topics([topic])[topic].result(DEADLINE_S)

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(DEADLINE_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete records, as retention does."""
        place = TopicPartition(topic, partition, before)
        self.admin.delete_records([place])[place].result(DEADLINE_S)

    def publish(
        self,
        count: int,
        topic: str = "orders",
        *,
        begin_ms: int = BEGIN_MS,
        step_ms: int = 1_000,
        value_bytes: int = 0,
        **place: Any,
    ) -> None:
        """Publish records that all differ, `step_ms` apart; acknowledged at the end.

        Some have no key, some no value, some headers. `partition` puts all in one.
        """
        with self._lock:
            first = self._published
            self._published += count
        # A new producer each time, for new partitions.
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "compression.type": "snappy"}
        )
        for number in range(first, first + count):
            producer.produce(
                topic,
                value=None if number % 17 == 3 else b"value %d" % number + bytes(value_bytes),
                key=None if number % 5 == 1 else b"key %d" % (number % 11),
                headers=[("event-id", b"%d" % number), ("none", None)] if number % 3 == 0 else None,
                timestamp=begin_ms + (number - first) * step_ms,
                **place,
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    @contextmanager
    def publishing(self, topic: str = "orders", pause_s: float = 0.5) -> Iterator[None]:
        """Publish records continuously, until the end or `stop_publishing`."""

        def publish() -> None:
            while not self._is_over.wait(pause_s):
                self.publish(20, topic, begin_ms=int(time.time() * 1_000), step_ms=1)

        self._publishing = threading.Thread(target=publish)
        self._publishing.start()
        try:
            yield
        finally:
            self.stop_publishing()

    def stop_publishing(self) -> None:
        """Stop publishing; all records are acknowledged on return."""
        assert self._publishing is not None
        self._is_over.set()
        self._publishing.join()

    def request(self, *topics: str, **options: Any) -> LoadRequest:
        return LoadRequest(
            **{
                "properties": {"bootstrap.servers": self.bootstrap_servers},
                "choice": Subscribed(topics or ("orders",)),
                "table": str(self.table_folder),
                **options,
            }
        )

    def load(self, spark: SparkSession, *topics: str, **options: Any) -> LoadReport:
        """Load in this process."""
        return load(self.request(*topics, **options), lambda: spark)

    def load_process(
        self,
        name: str,
        *arguments: str,
        submit: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> JobProcess:
        """Load in a process with its own Spark of two cores."""
        return JobProcess(
            self.folder / name,
            *("load", "--bootstrap-servers", self.bootstrap_servers, "--topics", "orders"),
            *("--table", str(self.table_folder), "--json", *arguments),
            *(("--master", "local[2]") if submit is None else ()),
            submit=submit,
            environment=environment,
        )

    def log_records(self, *topics: str) -> Counter[LogRecord]:
        """All records of the topics, read by a stock consumer."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "all"})
        starts: list[TopicPartition] = []
        ends: dict[tuple[str, int], int] = {}
        for topic in topics or ("orders",):
            for partition in consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions:
                place = TopicPartition(topic, partition)
                start, end = consumer.get_watermark_offsets(place, DEADLINE_S)
                if start < end:
                    starts.append(TopicPartition(topic, partition, start))
                    ends[topic, partition] = end
        consumer.assign(starts)
        found: Counter[LogRecord] = Counter()
        unread = set(ends)

        def read() -> bool:
            for message in consumer.consume(10_000, 0.1):
                assert message.error() is None, message.error()
                record = _consumed(message)
                end = ends[record.topic, record.partition]
                if record.offset < end:
                    found[record] += 1
                if record.offset >= end - 1:
                    unread.discard((record.topic, record.partition))
            return not unread

        until(read, "the log is read to its end")
        consumer.close()
        return found

    def table_records(self, files: Sequence[DataFile] | None = None) -> Counter[LogRecord]:
        """All rows of the table, or of some of its files."""
        chosen = self.table.head().files if files is None else files
        found: Counter[LogRecord] = Counter()
        for file in chosen:
            rows = [_row(row) for row in pq.read_table(self.table_folder / file.path).to_pylist()]
            assert rows == sorted(rows, key=lambda row: (row.partition, row.offset))
            assert len(rows) == file.records
            found.update(rows)
        return found

    def data_files(self) -> set[str]:
        """All Parquet files in the table's folder, relative to it."""
        return {
            path.relative_to(self.table_folder).as_posix()
            for path in self.table_folder.glob("data/**/*.parquet")
        }


def call_before_session(
    action: Callable[[], object], spark: SparkSession
) -> Callable[[], SparkSession]:
    """A session factory that first calls `action`, between a job's planning and its tasks."""

    def session() -> SparkSession:
        action()
        return spark

    return session


def _consumed(message: Any) -> LogRecord:
    headers = message.headers()
    return LogRecord(
        *(message.topic(), message.partition(), message.offset(), message.timestamp()[1]),
        *(message.key(), message.value(), None if headers is None else tuple(headers)),
    )


def _row(row: Mapping[str, Any]) -> LogRecord:
    headers = row["headers"]
    return LogRecord(
        *(row["topic"], row["partition"], row["offset"]),
        round(row["timestamp"].timestamp() * 1_000),
        *(row["key"], row["value"]),
        None if headers is None else tuple((each["key"], each["value"]) for each in headers),
    )
