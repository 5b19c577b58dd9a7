"""The replays as an operator watches them, for scrapes that must neither fail nor hang."""

import asyncio
from functools import partial
from typing import Final

from app.api.single_flight import SingleFlight
from app.domain.model import JobStatistics
from app.process import on_own_thread
from app.store import Store, StoreError

PATIENCE_S: Final = 1.0
"""How long a scrape waits for the database; Prometheus gives up after ten."""


class JobWatch:
    """Asks the store how the replays are, one question at a time.

    Those of this data centre (`origin`) are told of also when there are none.
    """

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin
        self._questions: SingleFlight[None, JobStatistics] = SingleFlight(on_own_thread)

    async def read(self) -> JobStatistics | None:
        """The numbers as of now; None when the database does not answer in time."""
        question = self._questions.ask(None, partial(self._store.job_statistics, self._origin))
        try:
            return await asyncio.wait_for(question, PATIENCE_S)
        except (StoreError, TimeoutError):
            return None
