"""Health checks of database, log and ZooKeeper, and replay statistics for metrics.

Each check runs once at a time, on a thread of its own, however many clients ask: probes need no API
key, a check may block for half a minute, and it must not occupy the threads of the routes.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from app.domain.model import JobStatistics
from app.log.errors import LogError
from app.log.history import LogHistory
from app.log.zookeeper_health import ZooKeeperServer, zookeeper_health
from app.process import on_own_thread
from app.services.single_flight import SingleFlight
from app.store import Store, StoreError

_log: Final = logging.getLogger("rewind.api")

STATISTICS_TIMEOUT_S: Final = 1.0
"""How long a scrape waits for the database; Prometheus' own timeout is ten seconds."""


class Readiness:
    """Checks whether the database and the log answer."""

    def __init__(self, store: Store, history: LogHistory) -> None:
        self._checks = {"database": store.check, "log": history.check}
        self._flights: SingleFlight[str, bool] = SingleFlight(on_own_thread)

    async def missing(self) -> tuple[str, ...]:
        """The names of those that do not answer."""
        answers = await asyncio.gather(*map(self.answers, self._checks))
        return tuple(name for name, is_up in zip(self._checks, answers, strict=True) if not is_up)

    async def answers(self, name: str) -> bool:
        """Whether `database`, or `log`, answers."""
        return await self._flights.call(name, partial(self._check, name))

    def _check(self, name: str) -> bool:
        try:
            self._checks[name]()
        except (StoreError, LogError) as error:
            _log.warning("not ready", extra={"cause": str(error)})
            return False
        return True


class ZooKeeperHealth:
    """Checks the servers of `addresses`, a value of `REWIND_ZOOKEEPER`."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._flights: SingleFlight[None, tuple[ZooKeeperServer, ...]] = SingleFlight(on_own_thread)

    async def read(self) -> tuple[ZooKeeperServer, ...]:
        """The state of each server, within about a second; empty without addresses."""
        if not self._addresses:
            return ()
        return await self._flights.call(None, partial(zookeeper_health, self._addresses))


class ReplayStatistics:
    """Reads replay statistics; those of the data centre `origin` also when it has no replays."""

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin
        self._flights: SingleFlight[None, JobStatistics] = SingleFlight(on_own_thread)

    async def read(self) -> JobStatistics | None:
        """The current statistics; None if the database does not answer in time."""
        statistics = self._flights.call(None, partial(self._store.job_statistics, self._origin))
        try:
            return await asyncio.wait_for(statistics, STATISTICS_TIMEOUT_S)
        except (StoreError, TimeoutError):
            return None
