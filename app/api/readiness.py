"""Whether the API can work, for probes: however many ask, it takes one thread."""

from app.api.request_log import LOGGER
from app.api.single_flight import SingleFlight
from app.log.errors import LogError
from app.log.history import LogHistory
from app.store import Store, StoreError


class Readiness:
    """Asks the database and the log whether they answer.

    Probes show no key, and a question may take seconds while one of the two is away: if each had
    a thread, strangers could take all that the routes have.
    """

    def __init__(self, store: Store, history: LogHistory) -> None:
        self._store = store
        self._history = history
        self._questions: SingleFlight[None, tuple[str, ...]] = SingleFlight()

    async def missing(self) -> tuple[str, ...]:
        """Which of them does not answer now."""
        return await self._questions.ask(None, self._look)

    def _look(self) -> tuple[str, ...]:
        return (
            *(() if self._database_answers() else ("database",)),
            *(() if self._log_answers() else ("log",)),
        )

    def _database_answers(self) -> bool:
        try:
            self._store.check()
        except StoreError as error:
            LOGGER.warning("not ready", extra={"cause": str(error)})
            return False
        return True

    def _log_answers(self) -> bool:
        try:
            self._history.check()
        except LogError as error:
            LOGGER.warning("not ready", extra={"cause": str(error)})
            return False
        return True
