"""A fresh bench for every test of a worker."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from worker_bench import Bench

from app.config import Settings
from app.store import Store, migrate


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A fresh log, an empty database, and settings that fail fast."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    migrate(url)
    broker = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    first = next(iter(broker.list_topics(timeout=5).brokers.values()))
    settings = Settings(
        bootstrap_servers=f"{first.host}:{first.port}",
        database=url,
        allow_private_targets=True,
        lease_s=3.0,
        heartbeat_s=0.2,
        poll_interval_s=0.02,
        checkpoint_interval_s=0.05,
        retry_base_s=0.02,
        retry_cap_s=0.05,
    )
    with closing(Store.open(url)) as store:
        yield Bench(settings.bootstrap_servers, store, settings)
    del broker
