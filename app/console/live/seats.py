"""Open pages: what each shows, and what is still to be told to it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.domain.filters import ReplayFilter

WATCHED_MAX: Final = 120
"""Things that a page may show live: fifty rows, and what stands around them."""

JOB_PAGES_MAX: Final = 1
"""Replays that a page shows as their own page does: each change of one costs milliseconds."""

ID_CHARACTERS_MAX: Final = 60

JOB_PREFIX: Final = "job:"
"""What begins the id of a replay's own page; its row on a list has the replay's id alone."""

COUNTERS: Final = "counters"
HEALTH: Final = "health"


@dataclass(frozen=True, slots=True)
class Change:
    """What something looks like now: the markup of its parts, as of a version of it."""

    id: str
    version: str
    parts: Mapping[str, str]

    def encode(self) -> str:
        """The event that tells a page so."""
        data = json.dumps({"id": self.id, "version": self.version, "parts": dict(self.parts)})
        return f"event: change\ndata: {data}\n\n"


@dataclass(eq=False)
class Seat:
    """One open page of a viewer who sees `account`; None is every account.

    `seen` holds what the page shows by id, with the version that it shows; `pending` the events
    that it has not been sent yet, of each thing the last one only.
    """

    account: str | None
    jobs: ReplayFilter
    """Of which the page shows the numbers."""

    seen: dict[str, str]
    pending: dict[str, str] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def replay_ids(self) -> set[str]:
        """The replays that the page shows, as rows or as the page itself."""
        shown = {thing.removeprefix(JOB_PREFIX) for thing in self.seen}
        return shown - {COUNTERS, HEALTH}

    def shows_otherwise(self, thing: str, version: str) -> bool:
        """Whether the page shows a thing, in another version than this."""
        return self.seen.get(thing, version) != version

    def tell(self, thing: str, version: str, event: str) -> None:
        """Have an event sent that brings a thing to this version."""
        self.seen[thing] = version
        self.pending[thing] = event
        self.woken.set()

    def take(self) -> str:
        """What is to be sent now; empty when there is nothing new."""
        self.woken.clear()
        events = "".join(self.pending.values())
        self.pending.clear()
        return events


def parse_watch(text: str) -> dict[str, str]:
    """The versions by id of `ID[:VERSION],...`; an id may hold one colon itself.

    Raises:
        Problem: there are too many, or one is too long.
    """
    items = [item for item in text.split(",") if item]
    if len(items) > WATCHED_MAX or any(len(item) > 2 * ID_CHARACTERS_MAX for item in items):
        allowed = f"at most {WATCHED_MAX} ids, each of up to {ID_CHARACTERS_MAX} characters"
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("watch", None, allowed)])
    if sum(item.startswith(JOB_PREFIX) for item in items) > JOB_PAGES_MAX:
        allowed = f"at most {JOB_PAGES_MAX} id that begins with {JOB_PREFIX}"
        raise Problem.of_fields(INVALID_REQUEST, [FieldError("watch", None, allowed)])
    return dict(_thing(item) for item in items)


def _thing(item: str) -> tuple[str, str]:
    prefix = JOB_PREFIX if item.startswith(JOB_PREFIX) else ""
    name, _, version = item.removeprefix(prefix).partition(":")
    return f"{prefix}{name}", version
