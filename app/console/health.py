"""How the parts that the service needs are, for the head of every page."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from jinja2 import Environment

from app.api.doors import Doors
from app.api.single_flight import SingleFlight
from app.domain.processes import Process, ProcessKind
from app.log.zookeeper_health import ZooKeeperServer
from app.process import on_own_thread
from app.store import StoreError

FRESH_S: Final = 5.0
"""However many pages are asked for, the parts are asked no more often than this."""

ANSWER_S: Final = 3.0
"""Who takes longer does not answer: a database that hangs may be silent for half a minute."""

PATIENCE_S: Final = 0.5
"""How long a page waits to learn it; without an answer, it shows what was last known."""

OLD_S: Final = 30.0
"""What was learnt less long ago is shown at once: the page's stream corrects it in a moment."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the parts: its name, whether it is well, and in a few words how it is."""

    name: str
    is_well: bool
    words: str


Health = tuple[Part, ...]


def _unknown(has_ensemble: bool) -> Health:
    """Every part that there will be: pages have a place for what they are told later."""
    names = ["database", "log", *(["ZooKeeper"] if has_ensemble else []), "workers", "live path"]
    return tuple(Part(name, False, "no answer yet") for name in names)


class HealthWatch:
    """Asks the parts, once for all pages of a process."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._known = _unknown(bool(doors.settings.zookeeper))
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._questions: SingleFlight[None, tuple[Process, ...]] = SingleFlight(on_own_thread)

    async def read(self) -> Health:
        """How they are, as of a few seconds ago, if they answer."""
        age_s = time.monotonic() - self._asked_s
        if age_s >= FRESH_S and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None and age_s >= OLD_S:
            await asyncio.wait([self._asking], timeout=PATIENCE_S)
        return self._known

    async def _ask(self) -> None:
        try:
            database, log, servers, processes = await asyncio.gather(
                self._part("database"),
                self._part("log"),
                self._doors.ensemble.read(),
                self._processes(),
            )
            self._known = (database, log, *_zookeeper(servers), *_present(processes))
            self._asked_s = time.monotonic()
        finally:
            self._asking = None

    async def _part(self, name: str) -> Part:
        try:
            async with asyncio.timeout(ANSWER_S):
                is_well = await self._doors.readiness.answers(name)
        except TimeoutError:
            is_well = False
        return Part(name, is_well, "answers" if is_well else "does not answer")

    async def _processes(self) -> tuple[Process, ...] | None:
        """Those that are known; None when the database does not answer."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._questions.ask(None, self._doors.store.processes)
        except (StoreError, TimeoutError):
            return None


def _zookeeper(servers: tuple[ZooKeeperServer, ...]) -> Iterator[Part]:
    """The ensemble, where there is one: without most of its servers it serves nobody."""
    if not servers:
        return
    serving = sum(server.mode is not None for server in servers)
    words = f"{serving} of {len(servers)} serve" if len(servers) > 1 else "answers"
    if not serving:
        words = "does not answer"
    yield Part("ZooKeeper", serving == len(servers), words)


def _present(processes: tuple[Process, ...] | None) -> Iterator[Part]:
    """How many processes of each kind are at work, besides those that serve pages."""
    at_work = Counter(each.kind for each in processes or () if not each.is_silent)
    silent = Counter(each.kind for each in processes or () if each.is_silent)
    for kind, name in ((ProcessKind.WORKER, "workers"), (ProcessKind.LIVE, "live path")):
        if processes is None:
            yield Part(name, False, "not known")
            continue
        words = f"{at_work[kind]} at work"
        if silent[kind]:
            words += f", {silent[kind]} silent"
        yield Part(name, at_work[kind] > 0 and not silent[kind], words)


def health_parts(environment: Environment, health: Health) -> dict[str, str]:
    """The markup of each part, by its name."""
    macro = environment.get_template("_health.html").module.part  # type: ignore[attr-defined]
    return {part.name: str(macro(part)) for part in health}
