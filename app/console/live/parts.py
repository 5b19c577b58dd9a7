"""The markup of what changes on open pages, made by the very functions that make the pages."""

from collections.abc import Mapping

from jinja2 import Environment

from app.api.doors import Doors, now_ms
from app.console.health import Health, health_parts
from app.console.job_parts import JobView, job_parts
from app.console.job_rows import counter_parts, row_parts
from app.domain.model import Replay
from app.domain.states import ReplayState


class PartMaker:
    """Makes parts by name: of rows, of a replay's own page, of numbers, of the health."""

    def __init__(self, doors: Doors, environment: Environment) -> None:
        self._store = doors.store
        self._environment = environment

    def row(self, replay: Replay) -> dict[str, str]:
        """Of a row in a list."""
        return row_parts(self._environment, replay, now_ms())

    def job(self, replay: Replay) -> dict[str, str]:
        """Of a replay's own page; it asks the database, so it is to be called in a thread."""
        view = JobView(replay, self._store.moves(replay.id), self._store.samples(replay.id))
        return job_parts(self._environment, view, now_ms())

    def counters(self, counts: Mapping[ReplayState, int]) -> dict[str, str]:
        """Of the numbers of replays by state."""
        return counter_parts(counts)

    def health(self, health: Health) -> dict[str, str]:
        """Of the head of every page."""
        return health_parts(self._environment, health)
