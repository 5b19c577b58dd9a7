"""Open pages: the items that each shows, and the updates queued for it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.domain.deliveries import ID_PREFIX, DeliveryStatus, parse_delivery_id
from app.domain.model import ReplayFilter
from app.http.problems import INVALID_REQUEST, Problem
from app.services.errors import FieldError

ITEMS_MAX: Final = 120
"""Items that a page may show live: fifty rows, and everything else on the page."""

LARGE_ITEMS_MAX: Final = 1
"""Items with a prefix that a page may show: a replay in full, whose changes take milliseconds to
render, and the count of one webhook."""

ID_CHARACTERS_MAX: Final = 60

JOB_PREFIX: Final = "job:"
"""The prefix of a replay shown in full. The id of a row is the replay's id."""

SETTLED_PREFIX: Final = "settled-"
"""The prefix of the count of a webhook's new deliveries."""

COUNTERS: Final = "counters"
HEALTH: Final = "health"


def is_delivery(item: str) -> bool:
    """Whether an item is a delivery. Its id is the delivery's."""
    return item.startswith(ID_PREFIX)


@dataclass(frozen=True, slots=True)
class PageUpdate:
    """The markup of the parts of an item, as of a version of it."""

    id: str
    version: str
    parts: Mapping[str, str]

    def encode(self) -> str:
        """Return the server-sent event."""
        data = json.dumps({"id": self.id, "version": self.version, "parts": dict(self.parts)})
        return f"event: change\ndata: {data}\n\n"


@dataclass(eq=False)
class OpenPage:
    """An open page of a viewer who sees `account`; None is all accounts.

    `versions` holds the version shown of each item, `pending` the latest unsent event of each.
    """

    account: str | None
    jobs: ReplayFilter
    """The filter of the counters on the page."""

    versions: dict[str, str]
    pending: dict[str, str] = field(default_factory=dict)
    has_updates: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def replay_ids(self) -> set[str]:
        """The replays on the page, as rows or in full."""
        shown = {item.removeprefix(JOB_PREFIX) for item in self.versions}
        others = (ID_PREFIX, SETTLED_PREFIX)
        return {item for item in shown if not item.startswith(others)} - {COUNTERS, HEALTH}

    @property
    def pending_deliveries(self) -> set[str]:
        """The deliveries on the page that it shows as pending."""
        return {
            item
            for item, version in self.versions.items()
            if is_delivery(item) and version.startswith(DeliveryStatus.PENDING)
        }

    def is_outdated(self, item: str, version: str) -> bool:
        """Whether the page shows an item in a version other than this one."""
        return self.versions.get(item, version) != version

    def remove(self, item: str) -> None:
        """Stop updating an item."""
        # Not in place: another thread may be iterating over them.
        self.versions = {each: at for each, at in self.versions.items() if each != item}

    def queue_update(self, item: str, version: str, event: str) -> None:
        """Queue the event that updates an item to a version."""
        self.versions[item] = version
        self.pending[item] = event
        self.has_updates.set()

    def drain_updates(self) -> str:
        """Return the queued events, and empty the queue."""
        self.has_updates.clear()
        events = "".join(self.pending.values())
        self.pending.clear()
        return events


def parse_watch_list(text: str) -> dict[str, str]:
    """Return the versions by id of `ID[:VERSION],...`. An id may contain one colon.

    Invalid ids of deliveries are left out.

    Raises:
        Problem: too many ids, or an id is too long.
    """
    items = [item for item in text.split(",") if item]
    if len(items) > ITEMS_MAX or any(len(item) > 2 * ID_CHARACTERS_MAX for item in items):
        allowed = f"at most {ITEMS_MAX} ids of up to {ID_CHARACTERS_MAX} characters"
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("watch", None, allowed)])
    for prefix in (JOB_PREFIX, SETTLED_PREFIX):
        if sum(item.startswith(prefix) for item in items) > LARGE_ITEMS_MAX:
            allowed = f"at most {LARGE_ITEMS_MAX} id with the prefix {prefix}"
            raise Problem.of_fields(INVALID_REQUEST, [FieldError("watch", None, allowed)])
    versions = dict(_split_version(item) for item in items)
    return {item: at for item, at in versions.items() if not _is_invalid_delivery(item)}


def _is_invalid_delivery(item: str) -> bool:
    return is_delivery(item) and parse_delivery_id(item) is None


def _split_version(item: str) -> tuple[str, str]:
    prefix = JOB_PREFIX if item.startswith(JOB_PREFIX) else ""
    name, _, version = item.removeprefix(prefix).partition(":")
    return f"{prefix}{name}", version
