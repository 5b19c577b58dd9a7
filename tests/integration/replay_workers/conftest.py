"""A new test bench for every test of a worker."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from app.config import Settings
from app.log.topics import ensure_topics
from app.store import Store
from tests.integration.replay_workers.worker_bench import PARTITIONS, Bench
from tests.support.database.migrated import make_migrated
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A fresh log, an empty database, and settings that fail fast."""
    broker = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    first = next(iter(broker.list_topics(timeout=DEADLINE_S).brokers.values()))
    with opened(f"{first.host}:{first.port}", tmp_path) as bench:
        yield bench
    del broker


@pytest.fixture
def timed_bench(tmp_path: Path, broker: BrokerProcess) -> Iterator[Bench]:
    """The same on a logbroker process: librdkafka's mock broker has no lookup by time."""
    ensure_topics(broker.bootstrap_servers, partitions=PARTITIONS, retention_ms=86_400_000)
    with opened(broker.bootstrap_servers, tmp_path) as bench:
        yield bench


@contextmanager
def opened(bootstrap_servers: str, folder: Path) -> Iterator[Bench]:
    url = f"sqlite:///{folder}/rewind.db"
    make_migrated(url)
    settings = Settings(
        bootstrap_servers=bootstrap_servers,
        database=url,
        allow_private_targets=True,
        # No worker loses a replay by itself, however busy the machine is.
        lease_s=60.0,
        heartbeat_s=0.2,
        poll_interval_s=0.1,
        checkpoint_interval_s=0.05,
        retry_base_s=0.02,
        retry_cap_s=0.05,
    )
    with closing(Store.open(url)) as store:
        yield Bench(settings.bootstrap_servers, store, settings)
