"""Looks up the pending deliveries on open pages, and queues what has changed for each page."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from jinja2 import Environment

from app.console.delivery_parts import delivery_parts, version_of
from app.console.live_pages import OpenPage, PageUpdate
from app.domain.deliveries import parse_delivery_id
from app.log.errors import InspectionsBusy, LogError, NotInLog
from app.log.inspection.deadline import Deadline
from app.process import on_own_thread
from app.services.deliveries import read_delivery
from app.services.services import Services
from app.store import StoreError
from app.store.errors import WebhookNotFound

LOOKUPS_PER_ROUND: Final = 8
"""Deliveries that one round reads from the log, regardless of the number of open pages."""

ROUND_S_MAX: Final = 5.0
"""After this time a round starts no further look-up; the next round knows which pages are open."""

Account = str | None
"""Whose deliveries a page shows; None is all accounts, for operators."""


class LookupTurns:
    """The order of look-ups: accounts in turn, and the deliveries of each account in turn."""

    def __init__(self) -> None:
        # What was looked up longest ago is first, new accounts and deliveries are last.
        self._queues: dict[Account, dict[str, None]] = {}

    def replace(self, pending: Mapping[Account, Collection[str]]) -> None:
        """Replace the deliveries to look up; the known ones keep their places."""
        queues: dict[Account, dict[str, None]] = {
            account: {} for account in self._queues if account in pending
        }
        for account, items in pending.items():
            known = self._queues.get(account, {})
            order = dict.fromkeys(item for item in known if item in items)
            queues[account] = order | dict.fromkeys(sorted(items))
        self._queues = queues

    def first(self, count: int) -> list[str]:
        """Return what to look up next, `count` at most."""
        first: dict[str, None] = {}
        for item in chain.from_iterable(zip_longest(*self._queues.values())):
            if len(first) == count:
                break
            if item is not None:
                first[item] = None
        return list(first)

    def move_back(self, item: str) -> None:
        """Move a delivery, and the accounts that wait for it, to the ends of their queues."""
        for account, queue in list(self._queues.items()):
            if item in queue:
                del queue[item], self._queues[account]
                queue[item] = None
                self._queues[account] = queue


class _Change(NamedTuple):
    """The version of a delivery, and what it changes for the pages that show the delivery."""

    version: str
    events: Mapping[OpenPage, str]
    """For the pages that show another version."""

    refused: Sequence[OpenPage]
    """The pages of accounts that may not see the delivery."""


class DeliveryUpdates:
    """Updates deliveries on open pages until they are settled. For one event loop.

    A round costs a few reads of the log. If pages show more deliveries than one round looks up, the
    others follow in the next rounds, in turn.
    """

    def __init__(self, services: Services, environment: Environment) -> None:
        self._services = services
        self._environment = environment
        self._turns = LookupTurns()

    async def queue_changes(self, pages: Iterable[OpenPage]) -> None:
        """Look up some of the pending deliveries, and queue the changes of each page."""
        # Hundreds of pages with a hundred rows each would block the event loop.
        shown = await on_own_thread(partial(self._find_pending, list(pages)))
        deadline = Deadline(ROUND_S_MAX)
        for item in self._turns.first(LOOKUPS_PER_ROUND):
            if deadline.is_over:
                break
            self._turns.move_back(item)
            viewers = [page for page, items in shown.items() if item in items]
            try:
                change = await on_own_thread(partial(self._look_up, item, viewers))
            except (NotInLog, WebhookNotFound):
                change = _Change("", {}, viewers)
            except (StoreError, InspectionsBusy):
                # The health on the page reports it; the next round retries.
                break
            except LogError:
                # Others may be readable.
                continue
            for page, event in change.events.items():
                page.queue_update(item, change.version, event)
            for page in change.refused:
                page.remove(item)

    def _find_pending(self, pages: Iterable[OpenPage]) -> dict[OpenPage, set[str]]:
        """Return the pending deliveries of each page, and add them to the turns."""
        shown = {page: page.pending_deliveries for page in pages}
        pending: dict[Account, set[str]] = {}
        for page, items in shown.items():
            if items:
                pending.setdefault(page.account, set()).update(items)
        self._turns.replace(pending)
        return shown

    def _look_up(self, item: str, viewers: Iterable[OpenPage]) -> _Change:
        """Return what a delivery changes for the pages that show it. Blocks.

        Raises:
            The errors of `read_delivery`.
        """
        place = parse_delivery_id(item)
        assert place is not None  # `parse_watch_list` drops other ids
        detail, webhook = read_delivery(self._services, place)
        version = version_of(detail.summary, is_resending=detail.pending_resends > 0)
        outdated: list[OpenPage] = []
        refused: list[OpenPage] = []
        for page in viewers:
            if page.account not in (None, webhook.account_id):
                refused.append(page)
            elif page.is_outdated(item, version):
                outdated.append(page)
        events: dict[bool, str] = {}
        for is_operator in {page.account is None for page in outdated}:
            parts = delivery_parts(self._environment, detail, is_operator=is_operator)
            events[is_operator] = PageUpdate(item, version, parts).encode()
        return _Change(version, {page: events[page.account is None] for page in outdated}, refused)
