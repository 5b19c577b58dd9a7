"""Looks up the webhooks and accounts that events name."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from anyio import to_thread

from app.store import Store

SHARED_IDS_MAX: Final = 100
"""Ids of a lookup that shares a query with others; a larger one would delay them."""


class Receivers(NamedTuple):
    """What exists of the requested ids, and of those of concurrent lookups."""

    owners: Mapping[str, str]
    """The id of the account of each existing webhook."""

    unknown_accounts: Collection[str]


class ReceiverLookups:
    """Looks ids up for one event loop; concurrent lookups share a query.

    Nothing is cached: a query starts after the lookups that it answers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[_Lookup] = []
        self._task: asyncio.Task[None] | None = None

    async def find(self, webhook_ids: frozenset[str], account_ids: frozenset[str]) -> Receivers:
        """Look up webhooks and accounts.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        if len(webhook_ids) + len(account_ids) > SHARED_IDS_MAX:
            return await to_thread.run_sync(self._read, webhook_ids, account_ids)
        lookup = _Lookup(webhook_ids, account_ids, asyncio.get_running_loop().create_future())
        self._waiting.append(lookup)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_waiting())
        return await lookup.answer

    async def _answer_waiting(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            webhook_ids = frozenset[str]().union(*(each.webhook_ids for each in waiting))
            account_ids = frozenset[str]().union(*(each.account_ids for each in waiting))
            try:
                found = await to_thread.run_sync(self._read, webhook_ids, account_ids)
            except Exception as error:
                for each in waiting:
                    if not each.answer.done():
                        each.answer.set_exception(error)
            else:
                for each in waiting:
                    if not each.answer.done():  # its request was cancelled
                        each.answer.set_result(found)

    def _read(self, webhook_ids: frozenset[str], account_ids: frozenset[str]) -> Receivers:
        store = self._store
        return Receivers(
            store.find_webhook_accounts(webhook_ids) if webhook_ids else {},
            store.find_unknown_accounts(account_ids) if account_ids else (),
        )


class _Lookup(NamedTuple):
    webhook_ids: frozenset[str]
    account_ids: frozenset[str]
    answer: asyncio.Future[Receivers]
