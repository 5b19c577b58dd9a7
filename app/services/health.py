"""Health checks of database, log and ZooKeeper, and replay statistics for metrics.

Each check runs once at a time, on a thread of its own, however many clients ask: probes need no API
key, a check may block for half a minute, and it must not occupy the threads of the routes.
"""

import asyncio
import logging
from functools import partial
from typing import Final

from app.domain.model import JobStatistics
from app.domain.processes import STALLED_PARTITIONS
from app.log.errors import LogError
from app.log.history import LogHistory
from app.log.zookeeper_health import ZooKeeperServer, zookeeper_health
from app.process import on_own_thread
from app.services.single_flight import SingleFlight
from app.store import Store, StoreError

LIVE_PATH: Final = "live path"
"""The name of what is not ready if a live process makes no progress in a partition."""

_log: Final = logging.getLogger("rewind.api")

STATISTICS_TIMEOUT_S: Final = 1.0
"""How long a scrape waits for the database; Prometheus' own timeout is ten seconds."""


class Readiness:
    """Checks whether the database and the log answer, and whether the live path makes progress."""

    def __init__(self, store: Store, history: LogHistory, origin: str = "") -> None:
        """`origin` is the data centre whose live path is checked; empty for all."""
        self._store = store
        self._origin = origin
        self._checks = {"database": store.check, "log": history.check}
        self._flights: SingleFlight[str, bool] = SingleFlight(on_own_thread)

    async def missing(self) -> tuple[str, ...]:
        """The names of those that do not answer."""
        answers = await asyncio.gather(*map(self.answers, self._checks))
        names = [name for name, is_up in zip(self._checks, answers, strict=True) if not is_up]
        # Without the database, the state of the live path is unknown.
        if "database" not in names and await self._flights.call(LIVE_PATH, self._is_stalled):
            names.append(LIVE_PATH)
        return tuple(names)

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

    def _is_stalled(self) -> bool:
        """Whether a live process makes no progress in a partition."""
        try:
            processes = self._store.processes()
        except StoreError:
            return False
        stalled = [
            each.name
            for each in processes
            if each.details.get(STALLED_PARTITIONS)
            and not each.is_silent
            and self._origin in ("", each.origin)
        ]
        for name in stalled:
            _log.warning("not ready", extra={"cause": f"{name} makes no progress in a partition"})
        return bool(stalled)


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
