import asyncio
import socket
import time
from contextlib import closing

import pytest

from app.domain.delivery import LiveOutcome
from app.domain.model import NewWebhook
from app.domain.tallies import CountedTally, DeliveryTally, SettledDelivery, Span, TallyCounter
from app.live.tally_writer import SETTLED_KEPT_MS, TallyWriter
from app.store import Store, StoreUnavailable
from app.store.tallies import ROWS_PER_ADD
from app.webhooks.signing import new_secret
from tests.support.database.mariadb import MariaDbServer
from tests.support.database.migrated import make_migrated
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000
RETENTION_MS = 6 * 24 * HOUR_MS


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Counting:
    """A webhook in a store, and its delivery statistics."""

    def __init__(self, store: Store) -> None:
        self.store = store
        new = NewWebhook("https://receiver.example/hook", "", new_secret())
        self.webhook_id = store.create_webhook(new).id
        self.tallies = TallyCounter(RETENTION_MS, lambda: pytest.fail("there was room for all"))
        self.writer = TallyWriter(store, self.tallies, "here", RETENTION_MS, flush_s=0.01)

    def count(self, *webhook_ids: str) -> None:
        for webhook_id in webhook_ids or (self.webhook_id,):
            present_ms = now_ms()
            settled = SettledDelivery(
                webhook_id, LiveOutcome.DELIVERED, present_ms, present_ms, 1.0
            )
            self.tallies.count_delivery(settled)

    def stored(self, span: Span = Span.SETTLED) -> int:
        return sum(each.delivered for each in self.store.tallies(self.webhook_id, span, 0))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def counting(store: Store) -> Counting:
    return Counting(store)


async def test_counts_are_stored_once(counting: Counting) -> None:
    counting.count()
    counting.count()
    await counting.writer.flush()
    assert (counting.stored(), counting.stored(Span.EVENT)) == (2, 2)
    await counting.writer.flush()
    counting.count()
    await counting.writer.finish()
    assert (counting.stored(), counting.stored(Span.EVENT)) == (3, 3)


async def test_many_counts_are_stored_in_several_transactions(counting: Counting) -> None:
    ids = [f"wh_{number}" for number in range(ROWS_PER_ADD + 1)]
    counting.count(*ids)
    await counting.writer.flush()
    assert len(counting.store.sum_tallies(ids, Span.SETTLED, 0)) == len(ids)


async def test_counts_accumulate_while_the_database_is_unavailable(mariadb: MariaDbServer) -> None:
    url = mariadb.create_database()
    make_migrated(url)
    with TcpLink(mariadb.port) as link:
        near = url.replace(f":{mariadb.port}/", f":{link.port}/")
        with closing(Store.open(near)) as store:
            counting = Counting(store)
            link.cut()
            for _ in range(3):
                counting.count()
                with pytest.raises(StoreUnavailable):
                    await counting.writer.flush()
            # What follows is not taken while it waits, so that its bound holds.
            assert counting.tallies
            link.mend()
            await counting.writer.flush()
            assert (counting.stored(), counting.stored(Span.EVENT)) == (3, 3)
            assert not counting.tallies


async def test_the_last_write_does_not_wait_for_a_silent_database() -> None:
    tallies = TallyCounter(RETENTION_MS, lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql+pymysql://rewind@127.0.0.1:{silent.getsockname()[1]}/rewind"
        with closing(Store.open(url)) as store:
            writer = TallyWriter(store, tallies, "here", RETENTION_MS)
            tallies.count_delivery(
                SettledDelivery("wh_1", LiveOutcome.DELIVERED, now_ms(), now_ms(), 1.0)
            )
            await writer.finish()
            asked, _ = silent.accept()
            asked.setblocking(False)
            # The question is still open.
            with pytest.raises(BlockingIOError):
                asked.recv(1)
            asked.close()


async def test_old_counts_are_deleted(counting: Counting) -> None:
    present_ms = now_ms()
    ages_ms = {
        Span.SETTLED: (2 * HOUR_MS, SETTLED_KEPT_MS + 1),
        Span.EVENT: (RETENTION_MS - HOUR_MS, RETENTION_MS + 1),
    }
    counting.store.add_tallies(
        [
            CountedTally(counting.webhook_id, span, DeliveryTally(present_ms - age_ms, 1))
            for span, ages in ages_ms.items()
            for age_ms in ages
        ],
        origin="here",
    )
    running = asyncio.create_task(counting.writer.run())
    await until_async(lambda: counting.stored() + counting.stored(Span.EVENT) == 2, "two deleted")
    running.cancel()
    for span, (young_ms, _) in ages_ms.items():
        (left,) = counting.store.tallies(counting.webhook_id, span, 0)
        assert left.start_ms == present_ms - young_ms
