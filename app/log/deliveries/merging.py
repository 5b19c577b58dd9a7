"""Merges lists of several groups of webhooks into one by time, and continues all of them. Pure.

The webhooks of a group have their records in the same partition, so one scan reads them together.
"""

import heapq
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from app.domain.deliveries import DeliveryStatus
from app.log.deliveries.delivery import DeliveryPage, DeliverySummary
from app.log.deliveries.query import DeliveryCursor
from app.log.errors import BrowseRefused

_ID: Final = "[A-Za-z0-9_]{1,64}"
_POSITION: Final = r"(?:p[0-9]{1,19}\.)?s[0-9]{1,19}"
_GROUP: Final = re.compile(rf"({_POSITION})?((?:-{_ID})+)", re.ASCII)

IS_OVER: Final = ""
"""The cursor of a group without further deliveries."""


class WebhookGroup(NamedTuple):
    """Webhooks that are read together, and their cursor: None at the begin, else may be `IS_OVER`.

    A list keeps the groups that are over: its cursor names all of its webhooks.
    """

    webhook_ids: tuple[str, ...]
    cursor: str | None = None


class MergedPage(NamedTuple):
    """Deliveries of all groups, the latest first, and where each group continues."""

    items: tuple[DeliverySummary, ...]
    groups: tuple[WebhookGroup, ...]

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page; None if all groups are over."""
        if all(each.cursor == IS_OVER for each in self.groups):
            return None
        return "~".join("-".join((each.cursor or "", *each.webhook_ids)) for each in self.groups)


def parse_groups(cursor: str) -> tuple[WebhookGroup, ...]:
    """Parse the cursor of a merged list.

    Raises:
        BrowseRefused: it is invalid.
    """
    matches = [_GROUP.fullmatch(each) for each in cursor.split("~")]
    found = [each for each in matches if each is not None]
    if len(found) < len(matches):
        raise BrowseRefused("cursor", cursor, "the nextCursor of the previous page")
    return tuple(WebhookGroup(tuple(each[2][1:].split("-")), each[1] or IS_OVER) for each in found)


def merge_pages(
    groups: Sequence[WebhookGroup], pages: Sequence[DeliveryPage], limit: int
) -> MergedPage:
    """Merge a page of each group; what exceeds `limit` is on the next page.

    Settled deliveries are ordered by the time of their outcome, pending ones by event time. Those
    of a group stay in the order of the log.
    """
    merged = heapq.merge(*map(_numbered, range(len(pages)), pages), key=_by_time)
    taken = [0] * len(pages)
    items: list[DeliverySummary] = []
    for number, item in merged:
        if len(items) == limit:
            break
        items.append(item)
        taken[number] += 1
    return MergedPage(
        tuple(items),
        tuple(
            WebhookGroup(group.webhook_ids, _cursor_after(page, count))
            for group, page, count in zip(groups, pages, taken, strict=True)
        ),
    )


def _numbered(number: int, page: DeliveryPage) -> Iterator[tuple[int, DeliverySummary]]:
    return ((number, each) for each in page.items)


def _by_time(numbered: tuple[int, DeliverySummary]) -> int:
    _, item = numbered
    return -(item.time_ms if item.settled_ms is None else item.settled_ms)


def _cursor_after(page: DeliveryPage, count: int) -> str:
    """The cursor behind the first `count` items of a page."""
    if count == len(page.items):
        return page.next_cursor or IS_OVER
    # Ends are exclusive.
    end = page.offsets[count] + 1
    if page.items[count].status is DeliveryStatus.PENDING:
        return DeliveryCursor(end, 0).text
    return DeliveryCursor(None, end).text
