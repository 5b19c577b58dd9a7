"""Looks up the pending deliveries on open pages, and queues what has changed for each page."""

from collections.abc import Iterable
from functools import partial
from typing import Final

from jinja2 import Environment

from app.console.delivery_parts import delivery_parts, version_of
from app.console.live_pages import OpenPage, PageUpdate
from app.domain.deliveries import parse_delivery_id
from app.log.deliveries import DeliveryDetail
from app.log.errors import LogError, NotInLog
from app.process import on_own_thread
from app.services.deliveries import read_delivery
from app.services.services import Services
from app.store import StoreError
from app.store.errors import WebhookNotFound

LOOKUPS_PER_ROUND: Final = 8
"""Deliveries that one round reads from the log, regardless of the number of open pages."""


class DeliveryUpdates:
    """Updates deliveries on open pages until they are settled. For one event loop.

    A round costs a few reads of the log. If pages show more deliveries than one round looks up, the
    others follow in the next rounds, in turn.
    """

    def __init__(self, services: Services, environment: Environment) -> None:
        self._services = services
        self._environment = environment
        self._order: list[str] = []

    async def queue_changes(self, pages: Iterable[OpenPage]) -> None:
        """Look up some of the pending deliveries, and queue the changes of each page."""
        shown = {page: page.pending_deliveries for page in pages}
        due = self._take_due(set[str]().union(*shown.values()))
        if not due:
            return
        found = await on_own_thread(partial(self._look_up, due))
        for item, (detail, account_id) in found.items():
            version = version_of(detail.summary, is_resending=detail.pending_resends > 0)
            for page, pending in shown.items():
                is_visible = page.account in (None, account_id)
                if item in pending and is_visible and page.is_outdated(item, version):
                    page.queue_update(item, version, self._event(item, version, detail, page))

    def _take_due(self, pending: set[str]) -> list[str]:
        """Return what to look up in this round: those that were not looked up for longest."""
        known = [item for item in self._order if item in pending]
        order = sorted(pending.difference(known)) + known
        due = order[:LOOKUPS_PER_ROUND]
        self._order = order[LOOKUPS_PER_ROUND:] + due
        return due

    def _look_up(self, items: Iterable[str]) -> dict[str, tuple[DeliveryDetail, str]]:
        """Return the deliveries that exist, with the accounts of their webhooks."""
        found: dict[str, tuple[DeliveryDetail, str]] = {}
        for item in items:
            place = parse_delivery_id(item)
            if place is None:
                continue
            try:
                detail, webhook = read_delivery(self._services, place)
            except (NotInLog, WebhookNotFound):
                continue
            except (LogError, StoreError):
                # The health on the page reports it; the next round retries.
                break
            found[item] = detail, webhook.account_id
        return found

    def _event(self, item: str, version: str, detail: DeliveryDetail, page: OpenPage) -> str:
        parts = delivery_parts(self._environment, detail, is_operator=page.account is None)
        return PageUpdate(item, version, parts).encode()
