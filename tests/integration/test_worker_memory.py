"""What a worker's memory comes to with as many replays as it takes at a time."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.model import Counts, NewReplay, NewWebhook, Window
from app.domain.options import EVENTS_PER_SECOND_MAX, ReplayOptions
from app.domain.states import TERMINAL
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until

pytestmark = pytest.mark.long

REPLAYS = 4
EVENTS = 60_000
BODY = b'{"type":"follow.created","data":{"text":"' + b"x" * 100 + b'"}}'
MEMORY_BYTES_MAX = 200 * 2**20
RUN = """
import os, sys
from app.config import Settings
from app.replay_workers.server import run
sys.exit(run(Settings.load(os.environ)))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    with closing(Store.open(url)) as store:
        yield store


def test_four_replays_of_many_events_stay_below_200_megabytes(
    tmp_path: Path, broker: BrokerProcess, store: Store
) -> None:
    """Tables of hashes take their full size from the first event on."""
    servers, end_ms = broker.bootstrap_servers, time.time_ns() // 1_000_000
    window = Window(end_ms - EVENTS, end_ms)
    with ReceiverThread() as receiver:
        url = receiver.url
        webhooks = [store.create_webhook(NewWebhook(url, "", new_secret())) for _ in range(REPLAYS)]

        async def publish() -> None:
            ensure_topics(servers, partitions=REPLAYS, retention_ms=86_400_000)
            async with EventPublisher(servers, origin="here", server="test") as publisher:
                for webhook in webhooks:
                    for start in range(0, EVENTS, 10_000):
                        events = [
                            NewEvent(webhook.id, f"evt_{n}", "t", window.from_ms + n, BODY)
                            for n in range(start, start + 10_000)
                        ]
                        await publisher.publish(DELIVERY_LOG, events)

        asyncio.run(publish())
        options = ReplayOptions(max_events_per_second=EVENTS_PER_SECOND_MAX, batch_size=200)
        replays = []
        for webhook in webhooks:
            store.enable_webhook(webhook.id, url)
            replays.append(store.create_replay(NewReplay(webhook.id, window, options))[0])
        # Slow enough that everything that may be read ahead is.
        receiver.answer(204, delay_s=0.1)
        environment = {
            "REWIND_DATABASE": f"sqlite:///{tmp_path}/rewind.db",
            "REWIND_BOOTSTRAP_SERVERS": servers,
            "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        }
        log = tmp_path / "worker.log"
        with ServerProcess(["-c", RUN], log, environment, is_forked=False) as worker:
            worker.start("rewind worker ready")
            until(
                lambda: all(store.replay(each.id).state in TERMINAL for each in replays),
                "all are over",
            )
            peak_bytes = highest_resident_bytes(worker)
    counts = {store.replay(each.id).counts for each in replays}
    assert counts == {Counts(delivered=EVENTS)}
    assert peak_bytes < MEMORY_BYTES_MAX


def highest_resident_bytes(process: ServerProcess) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1_024
