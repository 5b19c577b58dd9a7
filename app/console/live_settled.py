"""Counts the deliveries that were settled since a list of deliveries was loaded.

The counts are those of the statistics, which the live path stores every few seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self

from markupsafe import Markup

from app.console.formats import count
from app.console.live_pages import SETTLED_PREFIX, OpenPage, PageUpdate
from app.console.urls import deliveries_url
from app.domain.hours import HOUR_MS
from app.domain.tallies import Span
from app.log.deliveries import DeliveryPage
from app.services.services import Services
from app.store.sql import IDS_PER_QUERY

UNCOUNTED_MS: Final = 7_000
"""The statistics may have no delivery that was settled so shortly before."""

SHOWN_MS_MAX: Final = 2 * HOUR_MS
"""A list that was loaded earlier is not updated: older statistics are deleted."""

_Counts = Mapping[tuple[int, str], int]
"""Settled deliveries by the start of the count and the webhook."""


class SettledCount(NamedTuple):
    """The settled deliveries since `from_ms`: `loaded` when the list was loaded, `total` now."""

    from_ms: int
    loaded: int
    total: int

    @classmethod
    def parse(cls, version: str) -> Self | None:
        """Return the count that `version` encodes; None if it is invalid."""
        parts = version.split(".")
        if len(parts) != len(cls._fields) or not all(each.isdecimal() for each in parts):
            return None
        return cls(*map(int, parts))

    @property
    def version(self) -> str:
        """The text that `parse` parses."""
        return ".".join(map(str, self))

    def loaded_with(self, page: DeliveryPage, present_ms: int) -> Self:
        """Return the count of a list with this first page, which was counted at `present_ms`.

        It is exact if the page reaches back to `from_ms`. Otherwise, deliveries that were settled
        shortly before may count twice.
        """
        settled_ms = [each.settled_ms for each in page.items if each.settled_ms is not None]
        loaded = sum(each >= self.from_ms for each in settled_ms)
        is_whole = page.next_cursor is None or any(each < self.from_ms for each in settled_ms)
        if not is_whole or loaded < self.total:
            uncounted_ms = max(self.from_ms, present_ms - UNCOUNTED_MS)
            loaded = self.total + sum(each >= uncounted_ms for each in settled_ms)
        return self._replace(loaded=loaded, total=loaded)

    @property
    def new(self) -> int:
        """The deliveries that the list does not have."""
        return max(0, self.total - self.loaded)


def count_settled(services: Services, webhook_id: str, present_ms: int) -> SettledCount:
    """Return the count of a list that will be loaded."""
    from_ms = present_ms // Span.SETTLED.width_ms * Span.SETTLED.width_ms
    tallies = services.store.sum_tallies([webhook_id], Span.SETTLED, from_ms)
    total = tallies[webhook_id].settled if webhook_id in tallies else 0
    return SettledCount(from_ms, total, total)


def read_counts(services: Services, pages: Iterable[OpenPage], present_ms: int) -> _Counts:
    """Return the current counts of all open lists, with a query for each start of a count."""
    wanted: dict[int, set[str]] = {}
    for page in pages:
        for webhook_id, shown in _shown_counts(page):
            if 0 <= present_ms - shown.from_ms <= SHOWN_MS_MAX:
                wanted.setdefault(shown.from_ms, set()).add(webhook_id)
    store, counts = services.store, dict[tuple[int, str], int]()
    for from_ms, webhook_ids in wanted.items():
        ids = sorted(webhook_ids)[:IDS_PER_QUERY]
        for webhook_id, tally in store.sum_tallies(ids, Span.SETTLED, from_ms).items():
            counts[from_ms, webhook_id] = tally.settled
    return counts


def queue_counts(pages: Iterable[OpenPage], counts: _Counts, accounts: Mapping[str, str]) -> None:
    """Queue the counts that have changed. `accounts` are those of the webhooks, by their ids."""
    for page in pages:
        for webhook_id, shown in _shown_counts(page):
            if page.account not in (None, accounts.get(webhook_id)):
                continue
            total = counts.get((shown.from_ms, webhook_id), 0)
            now = shown._replace(total=max(shown.total, total))
            if now != shown:
                item = f"{SETTLED_PREFIX}{webhook_id}"
                update = PageUpdate(item, now.version, {"link": _link(webhook_id, now.new)})
                page.queue_update(item, now.version, update.encode())


def _shown_counts(page: OpenPage) -> Iterator[tuple[str, SettledCount]]:
    """Yield the counts of a page by webhook."""
    for item, version in list(page.versions.items()):
        shown = SettledCount.parse(version) if item.startswith(SETTLED_PREFIX) else None
        # A start is that of a tally, so that few starts are looked up.
        if shown is not None and shown.from_ms % Span.SETTLED.width_ms == 0:
            yield item.removeprefix(SETTLED_PREFIX), shown


def _link(webhook_id: str, new: int) -> str:
    words = "delivery" if new == 1 else "deliveries"
    markup = Markup('<a class="button" href="{}">{} new {}</a>')
    return str(markup.format(deliveries_url(webhook_id, {}), count(new), words)) if new else ""
