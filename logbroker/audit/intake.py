"""What the records of the topic `audit` say, record by record: counted, sorted, never trusted."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from logbroker.audit.comparison import LOCAL, Comparison, Patience
from logbroker.client.audit_format.report import PublishedReport, ReceivedReport, decode

_DIGEST_BYTES: Final = 8
"""Among a million events two are taken for the same once in thirty million audits."""


class AuditEntry(NamedTuple):
    """A record of the topic; `origin` says where a mirror brought it from."""

    partition: int
    offset: int
    time_ms: int
    value: bytes | None
    origin: str = LOCAL


class Odd(StrEnum):
    """What is told of a record besides what it says, or instead."""

    MALFORMED = "malformed"
    REPEATED = "repeated"
    AHEAD = "ahead"
    FUTURE = "future"


_NOTICES: Final = {
    Odd.MALFORMED: "{count} records of the topic are no monitoring events, and were left out",
    Odd.AHEAD: "{count} monitoring events were written ahead of this machine's time: "
    "is a clock wrong?",
    Odd.FUTURE: "{count} monitoring events are about windows that are still to come: "
    "is a clock wrong?",
}
"""What is worth a warning. Events that were written twice are an ordinary thing."""


class Intake:
    """Hands the events of records to a comparison, and counts what is odd about them."""

    def __init__(self, comparison: Comparison, patience: Patience) -> None:
        """Nothing was read yet."""
        self._comparison = comparison
        self._soon_ms = patience.now_ms + patience.lateness_ms
        self._digests: set[bytes] = set()
        self._first: dict[Odd, AuditEntry] = {}
        self.events: Counter[str] = Counter()
        """How many records there were of each kind, and how many were odd in which way."""

    def take(self, entry: AuditEntry) -> None:
        """Take in one record.

        Raises:
            TooMuch: the comparison has enough.
        """
        event = decode(entry.value)
        if event is None:
            self._note(Odd.MALFORMED, entry)
            return
        if entry.time_ms > self._soon_ms:
            self._note(Odd.AHEAD, entry)
        if any(window_ms > self._soon_ms for window_ms in _windows_ms(event)):
            self._note(Odd.FUTURE, entry)
        if isinstance(event, PublishedReport):
            self.events["published"] += 1
            self._comparison.add_published(event, entry.time_ms, entry.origin)
        elif self._is_new(entry):
            self.events["received"] += 1
            self._comparison.add_received(event, entry.time_ms)
        else:
            self._note(Odd.REPEATED, entry)

    def warnings(self) -> Iterator[str]:
        """A sentence for each kind of oddity that somebody should look into."""
        for odd, notice in _NOTICES.items():
            first = self._first.get(odd)
            if first is not None:
                told = notice.format(count=self.events[odd])
                yield f"{told} (the first: partition {first.partition}, offset {first.offset})"

    def _note(self, odd: Odd, entry: AuditEntry) -> None:
        self.events[odd] += 1
        self._first.setdefault(odd, entry)

    def _is_new(self, entry: AuditEntry) -> bool:
        assert entry.value is not None
        digest = blake2b(entry.value, digest_size=_DIGEST_BYTES).digest()
        is_new = digest not in self._digests
        self._digests.add(digest)
        return is_new


def _windows_ms(event: PublishedReport | ReceivedReport) -> Iterator[int]:
    if isinstance(event, PublishedReport):
        yield event.window_ms
    else:
        yield from (receipt.window_ms for receipt in event.counts)
