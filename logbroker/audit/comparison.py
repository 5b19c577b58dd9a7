"""What was published against what was received: sets of sequences, without I/O or clock.

For each topic, window and producer there is the set P of all sequences that were published, and
for each tier of consumers the set R of all that it received, both the union of what any number of
monitoring events told, in any order:

    missing = P - R      uncovered = R - P      duplicated = messages received - |R|

Source: the 2011 paper, section 5: consumers count what they received and validate it against the
monitoring events.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, NamedTuple

from logbroker.audit.set_shelf import UNPACKED_BYTES_MAX, SetShelf
from logbroker.client.audit_format.report import PublishedReport, ReceivedCount, ReceivedReport
from logbroker.client.audit_format.sequence_set import SequenceSet
from logbroker.errors import LogbrokerError

RANGES_MAX: Final = 10
"""Ranges of missing sequences that are named; the rest is in the count."""

ENTRIES_MAX: Final = 2_000_000
"""Sets that are compared at once, and who told of what: some gigabyte, however small they are."""

WINDOW_MS: Final = 60_000
"""How long a window is taken to be where its producer has told of none."""

LOCAL: Final = ""
"""The origin of what no mirror has brought."""

_MIRROR: Final = "mirror@"
"""How the tiers of mirrors begin; see `logbroker.mirror.mirror`."""


class TooMuch(LogbrokerError):
    """There is more to compare than memory is meant for; a shorter time or fewer topics help."""


class Status(StrEnum):
    """What can be said of a row; of several, the worst is the first one here."""

    MISSING = "missing"
    PENDING = "pending"
    UNCOVERED = "uncovered"
    UNREAD = "unread"
    COMPLETE = "complete"


class Scope(NamedTuple):
    """Windows that begin in [start_ms, end_ms), of these topics; of all where none is named."""

    start_ms: int
    end_ms: int
    topics: frozenset[str] = frozenset()

    def holds(self, topic: str, window_ms: int) -> bool:
        """Whether a window of a topic is to be compared."""
        return self.start_ms <= window_ms < self.end_ms and self.has_topic(topic)

    def has_topic(self, topic: str) -> bool:
        """Whether a topic is to be compared."""
        return not self.topics or topic in self.topics


class Patience(NamedTuple):
    """What time it is, and how long producers and consumers may take to tell what they counted."""

    now_ms: int
    lateness_ms: int

    def is_young(self, told_ms: int) -> bool:
        """Whether there may be more to come of what was told at a time.

        A time far ahead of ours is a wrong clock's, or forged: nothing is to wait for it.
        """
        age_ms = self.now_ms - told_ms
        return -self.lateness_ms <= age_ms < self.lateness_ms


@dataclass(frozen=True, slots=True)
class Row:
    """One window of one producer's messages to a topic, and what one tier received of it.

    `tier` is None where no tier has told of this topic. `window_end_ms` is None where the producer
    has not told. `missing_ranges` has the first sequences that are missing, as [start, end).
    """

    topic: str
    window_ms: int
    window_end_ms: int | None
    producer: str
    tier: str | None
    published: int
    received: int
    missing: int
    duplicated: int
    uncovered: int
    status: Status
    missing_ranges: tuple[tuple[int, int], ...] = ()


class _Window(NamedTuple):
    """Whose messages, and of when."""

    topic: str
    window_ms: int
    producer: str


_Key = tuple[_Window, str | None]
"""With a tier: what it received. Without: what was published."""


@dataclass(slots=True)
class _Told:
    """Beside a set: the newest time it was told of, and how many messages there were."""

    told_ms: int = 0
    count: int = 0


class Comparison:
    """Takes in monitoring events in any order, and then gives the rows."""

    def __init__(self, scope: Scope, unpacked_bytes_max: int = UNPACKED_BYTES_MAX) -> None:
        """Nothing is known yet."""
        self._scope = scope
        self._sets: SetShelf[_Key] = SetShelf(unpacked_bytes_max)
        self._told: dict[_Key, _Told] = {}
        self._ends_ms: dict[_Window, int] = {}
        self._origins: dict[str, str] = {}
        # Also of windows that are not to be compared: where a tier began to read.
        self._first_ms: dict[tuple[str, str, str], int] = {}
        self.tiers: set[str] = set()
        """Every tier that told anything of the topics."""

    def add_published(self, event: PublishedReport, told_ms: int, origin: str = LOCAL) -> None:
        """Take in what a producer told at a time; `origin` says which mirror brought it, if one.

        Raises:
            TooMuch: there is more to remember than `ENTRIES_MAX`.
        """
        if not self._scope.has_topic(event.topic):
            return
        if event.producer not in self._origins:
            self._make_room()
        if self._origins.setdefault(event.producer, origin) != LOCAL and origin == LOCAL:
            self._origins[event.producer] = LOCAL
        if self._scope.holds(event.topic, event.window_ms):
            window = _Window(event.topic, event.window_ms, event.producer)
            self._ends_ms[window] = event.window_end_ms
            self._add((window, None), event.sequences, len(event.sequences), told_ms)

    def add_received(self, event: ReceivedReport, told_ms: int) -> None:
        """Take in what a consumer told at a time; an event that was written twice only once.

        Raises:
            TooMuch: there is more to remember than `ENTRIES_MAX`.
        """
        for receipt in event.counts:
            if self._scope.has_topic(receipt.topic):
                self._add_receipt(event.tier, receipt, told_ms)

    def rows(self, patience: Patience, named_tiers: Collection[str] = ()) -> Iterator[Row]:
        """A row for each tier that received something of a window, or should have.

        They come by topic, window, producer and tier. Expected to receive a topic is every tier
        that has told of it, from the first window that it told of; and the named ones in any case.
        """
        expectations = _Expectations(self._first_ms, self._origins, named_tiers)
        heard: dict[_Window, set[str]] = {}
        for window, tier in self._told:
            tiers = heard.setdefault(window, set())
            if tier is not None:
                tiers.add(tier)
        for window in sorted(heard):
            expected = expectations.tiers(window) if (window, None) in self._told else set()
            tiers = heard[window] | expected
            for each in sorted(tiers):
                yield self._row(window, each, patience)
            if not tiers:
                yield self._unread(window)

    def _add_receipt(self, tier: str, receipt: ReceivedCount, told_ms: int) -> None:
        place = receipt.topic, tier, receipt.producer
        if place not in self._first_ms:
            self._make_room()
        self.tiers.add(tier)
        first_ms = self._first_ms.get(place, receipt.window_ms)
        self._first_ms[place] = min(first_ms, receipt.window_ms)
        if self._scope.holds(receipt.topic, receipt.window_ms):
            window = _Window(receipt.topic, receipt.window_ms, receipt.producer)
            self._add((window, tier), receipt.sequences, receipt.count, told_ms)

    def _add(self, key: _Key, sequences: SequenceSet, count: int, told_ms: int) -> None:
        told = self._told.get(key)
        if told is None:
            self._make_room()
            told = self._told[key] = _Told()
        told.count += count
        told.told_ms = max(told.told_ms, told_ms)
        self._sets.unite(key, sequences)

    def _make_room(self) -> None:
        """To be called before anything that was not known yet is remembered."""
        if len(self._told) + len(self._first_ms) + len(self._origins) >= ENTRIES_MAX:
            raise TooMuch(
                f"over {ENTRIES_MAX} sets, and who told of what, to compare; "
                "choose a shorter time, or topics"
            )

    def _row(self, window: _Window, tier: str, patience: Patience) -> Row:
        published = self._sets[window, None]
        received = self._sets[window, tier]
        lost = published.difference(received)
        missing, received_count = len(lost), len(received)
        uncovered = received.difference_count(published)
        told = self._told.get((window, tier), _Told())
        return Row(
            topic=window.topic,
            window_ms=window.window_ms,
            window_end_ms=self._ends_ms.get(window),
            producer=window.producer,
            tier=tier,
            published=len(published),
            received=received_count,
            missing=missing,
            duplicated=told.count - received_count,
            uncovered=uncovered,
            status=self._status(window, tier, missing, uncovered, patience),
            missing_ranges=tuple(islice(_ranges(lost), RANGES_MAX)),
        )

    def _unread(self, window: _Window) -> Row:
        return Row(
            topic=window.topic,
            window_ms=window.window_ms,
            window_end_ms=self._ends_ms[window],
            producer=window.producer,
            tier=None,
            published=len(self._sets[window, None]),
            received=0,
            missing=0,
            duplicated=0,
            uncovered=0,
            status=Status.UNREAD,
        )

    def _status(
        self, window: _Window, tier: str, missing: int, uncovered: int, patience: Patience
    ) -> Status:
        if missing:
            is_young = patience.is_young(self._told[window, None].told_ms)
            return Status.PENDING if is_young else Status.MISSING
        if uncovered:
            is_young = self._may_be_covered(window, self._told[window, tier], patience)
            return Status.PENDING if is_young else Status.UNCOVERED
        return Status.COMPLETE

    def _may_be_covered(self, window: _Window, received: _Told, patience: Patience) -> bool:
        """Whether a producer may still tell of what was received.

        It waits for the end of the window, and then for the lateness that it allows itself; and
        what it tells is on its way for a while.
        """
        end_ms = self._ends_ms.get(window, window.window_ms + WINDOW_MS)
        is_sane = received.told_ms <= patience.now_ms + patience.lateness_ms
        newest_ms = max(end_ms, received.told_ms) if is_sane else end_ms
        return patience.now_ms < newest_ms + 2 * patience.lateness_ms


class _Expectations:
    """Which tiers are to receive a window.

    A mirror that brings the topic `audit` along brings the words of producers whose messages it
    may not bring. So a tier that receives messages of one origin is not expected to receive those
    of another, unless it has told of some. Nor is a mirror whose data centre is idle expected to
    bring what another mirror brings.
    """

    def __init__(
        self,
        first_ms: dict[tuple[str, str, str], int],
        origins: dict[str, str],
        named_tiers: Collection[str],
    ) -> None:
        self._origins = origins
        self._named = frozenset(named_tiers)
        # By topic and origin: from which window on each tier is expected.
        self._from_ms: dict[tuple[str, str], dict[str, int]] = {}
        self._tellers: dict[str, set[str]] = {}
        for (topic, tier, producer), first in first_ms.items():
            if producer in origins:
                tiers = self._from_ms.setdefault((topic, origins[producer]), {})
                tiers[tier] = min(first, tiers.get(tier, first))
                self._tellers.setdefault(topic, set()).add(tier)

    def tiers(self, window: _Window) -> set[str]:
        """The tiers that are to receive what was published in a window."""
        from_ms = self._from_ms.get((window.topic, self._origins[window.producer]), {})
        begun = {tier for tier, first in from_ms.items() if first <= window.window_ms}
        silent = self._named - self._tellers.get(window.topic, set())
        if any(map(_is_mirror, from_ms)):
            silent = frozenset(tier for tier in silent if not _is_mirror(tier))
        return begun | (self._named & from_ms.keys()) | silent


def _is_mirror(tier: str) -> bool:
    return tier.startswith(_MIRROR)


def _ranges(sequences: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges [start, end)."""
    start: int | None = None
    end = 0
    for each in sequences:
        if start is not None and each != end:
            yield start, end
            start = None
        if start is None:
            start = each
        end = each + 1
    if start is not None:
        yield start, end
