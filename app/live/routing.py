"""The routing table: a copy of all webhooks, rules and grants, refreshed from the database."""

import asyncio
import logging
import time
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final

from app.domain.event_values import EventBody
from app.domain.match_index import MatchIndex
from app.domain.model import Webhook
from app.domain.routing_changes import RoutingChanges
from app.live.loop_turns import LoopTurns
from app.process import until_next_tick
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

REFRESH_S: Final = 0.5
"""Interval of refreshes; a change takes effect well within a second."""

_REFRESHED_S: Final = 10.0
"""A database that takes longer to answer counts as unavailable."""

_WARNING_S: Final = 10.0

_NO_IDS: Final = frozenset[str]()


class RoutingTable:
    """Webhooks, their rules, and the grants of their accounts, for one event loop.

    While the database is unavailable it stays unchanged, logs a warning and reports its age.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules = MatchIndex()
        self._grants = MatchIndex()
        self._webhooks: dict[str, Webhook] = {}
        self._webhook_ids: dict[str, set[str]] = {}
        """By account."""
        self._revision = 0
        self._version: int | None = None
        """The data version of the database whose changes are applied."""
        self._fresh_s = time.monotonic()
        self._next_warning_s = 0.0
        self._refreshed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def webhook_count(self) -> int:
        """The number of webhooks."""
        return len(self._webhooks)

    @property
    def rule_count(self) -> int:
        """The number of rules."""
        return len(self._rules)

    @property
    def age_s(self) -> float:
        """Seconds since the last refresh."""
        return time.monotonic() - self._fresh_s

    def webhook(self, webhook_id: str) -> Webhook | None:
        """The webhook with this id, if it exists."""
        return self._webhooks.get(webhook_id)

    def match(self, event_type: str, body: bytes, account_id: str | None = None) -> list[str]:
        """The ids of the webhooks that have a rule for an event, whatever their status.

        Of an event for one account, only those of this account; otherwise those of all accounts
        whose grants cover the event.
        """
        content = EventBody(body)
        matching = self._rules.match(event_type, content)
        if not matching:
            return []
        # Either may be long where the other is short: the shorter one is compared with the other.
        accounts: Collection[str] = (
            self._grants.match(event_type, content) if account_id is None else (account_id,)
        )
        if len(accounts) < len(matching):
            owned = [self._webhook_ids.get(each, _NO_IDS) for each in accounts]
            if sum(map(len, owned)) < len(matching):
                return sorted(each for each in chain.from_iterable(owned) if each in matching)
        webhooks = self._webhooks
        return [
            each for each in matching if each in webhooks and webhooks[each].account_id in accounts
        ]

    def put_webhook(self, webhook: Webhook) -> None:
        """Add a webhook, or replace it by what the store has just returned."""
        self._webhooks[webhook.id] = webhook
        self._webhook_ids.setdefault(webhook.account_id, set()).add(webhook.id)

    def _remove_webhook(self, webhook_id: str) -> None:
        webhook = self._webhooks.pop(webhook_id, None)
        if webhook is None:
            return
        ids = self._webhook_ids[webhook.account_id]
        ids.remove(webhook_id)
        if not ids:
            del self._webhook_ids[webhook.account_id]

    async def run(self) -> None:
        """Refresh the table until cancelled."""
        while True:
            refreshed, self._refreshed = self._refreshed, asyncio.get_running_loop().create_future()
            await self._try_to_refresh()
            refreshed.set_result(None)
            await asyncio.sleep(until_next_tick(REFRESH_S))

    async def wait_until_refreshed(self) -> None:
        """Return when the table has what the database holds now, or the database is unavailable."""
        await asyncio.wait([self._refreshed], timeout=_REFRESHED_S)

    async def refresh(self) -> None:
        """Apply the changes since the last refresh.

        Raises:
            StoreUnavailable: the database does not respond.
        """
        began_s = time.monotonic()
        version = self._store.database.data_version()
        if version is None or version != self._version:
            changes = await asyncio.to_thread(self._store.routing_changes, self._revision)
            await self._apply(changes)
            self._version = version
        self._fresh_s = began_s

    async def _try_to_refresh(self) -> None:
        try:
            await self.refresh()
        except StoreUnavailable as error:
            now_s = time.monotonic()
            if now_s >= self._next_warning_s:
                self._next_warning_s = now_s + _WARNING_S
                fields = {"reason": str(error), "age_s": round(self.age_s, 1)}
                _log.warning("routing-table-not-refreshed", extra=fields)

    async def _apply(self, changes: RoutingChanges) -> None:
        if changes.revision < self._revision:
            self._clear()
        for webhook in changes.webhooks:
            self.put_webhook(webhook)
        for webhook_id in changes.gone_webhooks:
            # From here on it matches nothing; its rules may be many.
            self._remove_webhook(webhook_id)
        turns = LoopTurns()
        for account_id, name in changes.gone_grants:
            self._grants.remove(account_id, name)
            await turns.yield_if_long()
        for rule in changes.rules:
            self._rules.put(rule.webhook_id, rule)
            await turns.yield_if_long()
        for webhook_id, name in self._gone_rules(changes):
            self._rules.remove(webhook_id, name)
            await turns.yield_if_long()
        for grant in changes.grants:
            self._grants.put(grant.account_id, grant)
            await turns.yield_if_long()
        # Last: if this is cancelled earlier, all changes are applied again.
        self._revision = changes.revision

    def _gone_rules(self, changes: RoutingChanges) -> Iterator[tuple[str, str]]:
        yield from changes.gone_rules
        for webhook_id in changes.gone_webhooks:
            for name in self._rules.names_of(webhook_id):
                yield webhook_id, name

    def _clear(self) -> None:
        self._rules = MatchIndex()
        self._grants = MatchIndex()
        self._webhooks = {}
        self._webhook_ids = {}
