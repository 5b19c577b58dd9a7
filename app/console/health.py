"""The health of the service's dependencies and processes, shown at the top of every page."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment

from app.domain.processes import Process, ProcessKind
from app.log.zookeeper_health import ZooKeeperServer
from app.process import on_own_thread
from app.services.services import Services
from app.services.single_flight import SingleFlight
from app.store import StoreError

FRESH_S: Final = 5.0
"""The minimum interval between checks, regardless of the number of pages."""

CHECK_S_MAX: Final = 3.0
"""The timeout of a check: a database that hangs may block for half a minute."""

PAGE_WAIT_S: Final = 0.5
"""How long a page waits for a check before it shows the previous result."""

STALE_S: Final = 30.0
"""A younger result is shown without waiting; the page's stream updates it."""


@dataclass(frozen=True, slots=True)
class ComponentHealth:
    """The health of a component: its name, whether it is healthy, and its state in words."""

    name: str
    is_healthy: bool
    words: str


Health = tuple[ComponentHealth, ...]


def _unknown(has_zookeeper: bool) -> Health:
    """Return all components as unknown, so that pages have an element for each."""
    names = ["database", "log", *(["ZooKeeper"] if has_zookeeper else []), "workers", "live path"]
    return tuple(ComponentHealth(name, False, "checking") for name in names)


class HealthMonitor:
    """Checks the components, once for all pages of a process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._health = _unknown(bool(services.settings.zookeeper))
        self._checked_s = float("-inf")
        self._check: asyncio.Task[None] | None = None
        self._queries: SingleFlight[None, tuple[Process, ...]] = SingleFlight(on_own_thread)

    async def read(self) -> Health:
        """Return the latest result. Starts a check if it is older than `FRESH_S`."""
        age_s = time.monotonic() - self._checked_s
        if age_s >= FRESH_S and self._check is None:
            self._check = asyncio.create_task(self._check_all())
        if self._check is not None and age_s >= STALE_S:
            await asyncio.wait([self._check], timeout=PAGE_WAIT_S)
        return self._health

    async def _check_all(self) -> None:
        try:
            database, log, servers, processes = await asyncio.gather(
                self._check_readiness("database"),
                self._check_readiness("log"),
                self._services.zookeeper.read(),
                self._processes(),
            )
            self._health = (database, log, *_zookeeper_health(servers), *_process_health(processes))
            self._checked_s = time.monotonic()
        finally:
            self._check = None

    async def _check_readiness(self, name: str) -> ComponentHealth:
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                is_healthy = await self._services.readiness.answers(name)
        except TimeoutError:
            is_healthy = False
        return ComponentHealth(name, is_healthy, "up" if is_healthy else "unreachable")

    async def _processes(self) -> tuple[Process, ...] | None:
        """Return the registered processes; None when the database does not answer."""
        try:
            async with asyncio.timeout(CHECK_S_MAX):
                return await self._queries.call(None, self._services.store.processes)
        except (StoreError, TimeoutError):
            return None


def _zookeeper_health(servers: tuple[ZooKeeperServer, ...]) -> Iterator[ComponentHealth]:
    """Yield the health of the ensemble, if one is configured."""
    if not servers:
        return
    serving = sum(server.mode is not None for server in servers)
    words = f"{serving} of {len(servers)} up" if len(servers) > 1 else "up"
    if not serving:
        words = "unreachable"
    yield ComponentHealth("ZooKeeper", serving == len(servers), words)


def _process_health(processes: tuple[Process, ...] | None) -> Iterator[ComponentHealth]:
    """Yield the numbers of running workers and live processes."""
    running = Counter(each.kind for each in processes or () if not each.is_silent)
    silent = Counter(each.kind for each in processes or () if each.is_silent)
    for kind, name in ((ProcessKind.WORKER, "workers"), (ProcessKind.LIVE, "live path")):
        if processes is None:
            yield ComponentHealth(name, False, "unknown")
            continue
        words = f"{running[kind]} running"
        if silent[kind]:
            words += f", {silent[kind]} not responding"
        yield ComponentHealth(name, running[kind] > 0 and not silent[kind], words)


def health_parts(environment: Environment, health: Health) -> dict[str, str]:
    """Return the markup of each component by its name."""
    macro = environment.get_template("_health.html").module.component  # type: ignore[attr-defined]
    return {component.name: str(macro(component)) for component in health}
