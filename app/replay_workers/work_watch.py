"""Lets the polls of an idle worker do nothing until something is committed."""

import asyncio

from app.store import Store


class WorkWatch:
    """Knows whether the database may have work for a worker. For one event loop.

    On SQLite, a database that has no work has none until the next commit, which is noticed without
    a query. On other databases each poll has to query.
    """

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin
        self._idle_version: int | None = None
        """The data version at which nothing waited."""
        self._looking = asyncio.Lock()

    async def is_idle(self) -> bool:
        """Whether no replay, notice or resend waits, nor will before the next commit.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        async with self._looking:
            # Read before the query: a commit in between is a change.
            version = self._store.database.data_version()
            if version is None:
                return False
            if version != self._idle_version:
                self._idle_version = None
                query = self._store.is_any_work_waiting
                if await asyncio.to_thread(query, self._origin):
                    return False
                self._idle_version = version
            return True
