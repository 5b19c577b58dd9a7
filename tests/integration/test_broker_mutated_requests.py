"""A broker survives mutated requests, and serves a stock client meanwhile."""

from pathlib import Path

import pytest

from benchmarks.mutated_requests import OPTIONS, STOCK_TOPIC, StockTraffic, attack
from benchmarks.running_broker import running_broker
from tests.support.processes.waiting import until

REQUESTS = 5_000
MEMORY_BYTES_MAX = 64 * 2**20


@pytest.mark.long
def test_mutated_requests_cost_neither_messages_nor_memory(tmp_path: Path) -> None:
    options = (*OPTIONS, "--request-memory-bytes-max", str(MEMORY_BYTES_MAX))
    with running_broker(tmp_path / "log", options=options) as broker:
        broker.create_topic(STOCK_TOPIC)
        done = attack(broker, count=REQUESTS, seed=1)
        assert broker.process.is_running()
    assert sum(done.tally) == REQUESTS
    assert done.tally.answered > REQUESTS / 10, "most mutations would be rejected at their frame"
    assert done.sent > 0
    assert done.lost == 0
    assert done.growth_mb * 1e6 <= MEMORY_BYTES_MAX


@pytest.mark.long
def test_the_stock_client_measures_only_its_own_messages(tmp_path: Path) -> None:
    with running_broker(tmp_path / "log", options=OPTIONS) as broker:
        broker.create_topic(STOCK_TOPIC)
        with StockTraffic(broker.bootstrap_servers) as earlier:
            until(lambda: earlier.sent > 100, "messages of an earlier run")
        with StockTraffic(broker.bootstrap_servers) as traffic:
            until(lambda: traffic.sent, "a message")
    assert traffic.lost == 0
    assert traffic._consumed <= set(range(traffic.sent))
