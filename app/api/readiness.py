"""Whether the API can work, for probes: however many ask, it takes two threads."""

import asyncio
from functools import partial

from app.api.request_log import LOGGER
from app.api.single_flight import SingleFlight
from app.log.errors import LogError
from app.log.history import LogHistory
from app.process import on_own_thread
from app.store import Store, StoreError


class Readiness:
    """Asks the database and the log whether they answer, beside each other.

    Probes show no key, and a question may take half a minute while one of the two hangs: if each
    had a thread, strangers could take all that the routes have. The threads are of their own, so
    that the process ends without them.
    """

    def __init__(self, store: Store, history: LogHistory) -> None:
        self._checks = {"database": store.check, "log": history.check}
        self._questions: SingleFlight[str, bool] = SingleFlight(on_own_thread)

    async def missing(self) -> tuple[str, ...]:
        """Which of them does not answer now."""
        answers = await asyncio.gather(*map(self.answers, self._checks))
        return tuple(
            name for name, answered in zip(self._checks, answers, strict=True) if not answered
        )

    async def answers(self, name: str) -> bool:
        """Whether `database`, or `log`, answers now."""
        return await self._questions.ask(name, partial(self._look, name))

    def _look(self, name: str) -> bool:
        try:
            self._checks[name]()
        except (StoreError, LogError) as error:
            LOGGER.warning("not ready", extra={"cause": str(error)})
            return False
        return True
