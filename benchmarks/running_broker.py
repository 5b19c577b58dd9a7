"""A broker of this project in a separate process, with its CPU and memory."""

import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from logbroker.embedded import EmbeddedBroker

DEADLINE_S: Final = 60.0
REQUEST_S: Final = 10.0
LINES_KEPT: Final = 100


class RunningBroker:
    """A running broker: its address, its topics, and its use of resources."""

    def __init__(self, bootstrap_servers: str, pid: int, data_dir: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        host, _, port = bootstrap_servers.rpartition(":")
        self.address = (host, int(port))
        self.process = psutil.Process(pid)
        self.data_dir = data_dir
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 0,
        }
        self._admin = AdminClient(client)
        self._consumer = Consumer(client | {"group.id": "bench"})

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; settings that are not given are the broker's defaults."""
        topic = NewTopic(name, partitions, config=dict(settings or {}))
        self._admin.create_topics([topic])[name].result()

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([name])[name].result()

    def segments(self, topic: str, suffix: str) -> list[Path]:
        """Return the files of a topic's partitions with this suffix."""
        return sorted(self.data_dir.glob(f"{topic}-*/*{suffix}"))

    def wait_for_end(self, topic: str, offset: int, partition: int = 0) -> None:
        """Wait until the high watermark is exactly `offset`."""
        until(lambda: self.end(topic, partition) == offset, f"{topic} has {offset} visible records")

    def end(self, topic: str, partition: int = 0) -> int:
        """Return the high watermark of a partition."""
        _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_S)
        return end

    def cpu_s(self) -> float:
        """Return the CPU seconds of the broker's process."""
        return cpu_s(self.process)

    def resident_mb(self) -> float:
        """Return the resident memory, in units of 10**6 bytes."""
        return self.process.memory_info().rss / 1e6


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process, in user and kernel mode."""
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def running_broker(
    data_dir: Path, *, options: Sequence[str] = (), keeps_data: bool = True
) -> Iterator[RunningBroker]:
    """Run a broker on `data_dir`; stop it cleanly at the end, or kill it unless `keeps_data`."""
    output: deque[str] = deque(maxlen=LINES_KEPT)
    broker = EmbeddedBroker(data_dir, options=options, write_line=output.append)
    broker.start()
    try:
        yield RunningBroker(broker.bootstrap_servers, broker.pid, data_dir)
    except BaseException:
        sys.stderr.writelines(output)
        raise
    finally:
        if keeps_data:
            broker.stop()
        else:
            broker.kill()


@contextmanager
def fresh_broker(folder: Path, *, options: Sequence[str] = ()) -> Iterator[RunningBroker]:
    """Run a broker without topics, with its data in a new folder under `folder`.

    The disk is synced at the end; otherwise the next flush would include the time in which the
    file system frees gigabytes.
    """
    with (
        tempfile.TemporaryDirectory(dir=folder) as data_dir,
        running_broker(Path(data_dir), options=options, keeps_data=False) as broker,
    ):
        yield broker
    os.sync()


def until(
    holds: Callable[[], bool],
    what: str,
    *,
    period_s: float = 0.005,
    deadline_s: float = DEADLINE_S,
) -> None:
    """Wait for a condition, which is checked every `period_s` seconds.

    Raises:
        TimeoutError: the condition is still false after `deadline_s` seconds.
    """
    deadline = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out: {what}")
        time.sleep(period_s)
