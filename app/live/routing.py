"""The routing table: all webhooks with all rules, copied into this process and kept fresh."""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final

from app.domain.model import Webhook
from app.domain.rule_index import RuleIndex
from app.domain.rules import RoutingChanges
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

REFRESH_S: Final = 0.25
"""Between two looks at the database; a change so takes effect well within a second."""

_REFRESHED_S: Final = 2.0
_WARNING_S: Final = 10.0
_TURN_RULES: Final = 2_000
"""Rules filed before other tasks get a turn, a few milliseconds."""


class RoutingTable:
    """Who wants what, and where it is to be sent; used on one event loop.

    Without the database it stays as it is, and says so in the log and by its age.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rules = RuleIndex()
        self._webhooks: dict[str, Webhook] = {}
        self._revision = 0
        self._fresh_s = time.monotonic()
        self._next_warning_s = 0.0
        self._refreshed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def webhook_count(self) -> int:
        """How many webhooks there are."""
        return len(self._webhooks)

    @property
    def rule_count(self) -> int:
        """How many rules there are."""
        return len(self._rules)

    @property
    def age_s(self) -> float:
        """For how long the database has said nothing."""
        return time.monotonic() - self._fresh_s

    def webhook(self, webhook_id: str) -> Webhook | None:
        """The webhook of this id, if there is one."""
        return self._webhooks.get(webhook_id)

    def wanting(self, event_type: str, body: bytes) -> list[str]:
        """The ids of the webhooks that want an event, whatever their status."""
        return [each for each in self._rules.match(event_type, body) if each in self._webhooks]

    def learn(self, webhook: Webhook) -> None:
        """Take a webhook as the store has just given it."""
        self._webhooks[webhook.id] = webhook

    async def run(self) -> None:
        """Keep the table fresh until cancelled."""
        while True:
            asked, self._refreshed = self._refreshed, asyncio.get_running_loop().create_future()
            await self._try_to_refresh()
            asked.set_result(None)
            await asyncio.sleep(REFRESH_S)

    async def refreshed(self) -> None:
        """Wait until what the database held at this moment is in the table.

        Returns as well when the database does not answer: then what is known has to do.
        """
        await asyncio.wait([self._refreshed], timeout=_REFRESHED_S)

    async def refresh(self) -> None:
        """Take in what has changed.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        began_s = time.monotonic()
        changes = await asyncio.to_thread(self._store.routing_changes, self._revision)
        await self._apply(changes)
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
            self._forget_all()
        for webhook in changes.webhooks:
            self._webhooks[webhook.id] = webhook
        for webhook_id in changes.gone_webhooks:
            self._webhooks.pop(webhook_id, None)
            self._rules.remove_webhook(webhook_id)
        for number, rule in enumerate(changes.rules):
            self._rules.put(rule)
            if number % _TURN_RULES == _TURN_RULES - 1:
                await asyncio.sleep(0)
        self._remove(changes.gone_rules)
        # Last: should this be cut off before, it all comes again.
        self._revision = changes.revision

    def _remove(self, rules: Iterable[tuple[str, str]]) -> None:
        for webhook_id, name in rules:
            self._rules.remove(webhook_id, name)

    def _forget_all(self) -> None:
        self._rules = RuleIndex()
        self._webhooks = {}
