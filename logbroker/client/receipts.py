"""What a consumer counts: which messages it received, by topic, producer and window."""

import time
from collections.abc import Callable
from typing import Final

from logbroker.client.audit_event import (
    NAME_BYTES_MAX,
    AuditRecord,
    Receipt,
    Received,
    encode_received,
)
from logbroker.client.audit_mark import SEQUENCE_MAX, parse_mark
from logbroker.client.sequence_set import SequenceSet
from logbroker.errors import ConfigurationError

KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""About how much memory a book takes when it is full."""

_TALLY_BYTES: Final = 1_000
"""What is kept for each topic, producer and window, besides the set."""

_LOOK_EVERY: Final = 1_024
"""Messages between two looks at how much is kept: a forger's may add a page each, 700 KB in all."""

_DIGITS_MAX: Final = len(str(SEQUENCE_MAX))


class ReceiptBook:
    """Counts the marked messages of one consumer; not safe on several threads.

    `tier` is what consumers do that read the same messages, `consumer` a name that no other book
    of that tier has at the same time.

    Publish `take()` and have it acknowledged before positions are committed: then a crash makes
    repeats, and never a message that was received and seems lost. To publish earlier does no harm.
    """

    def __init__(self, tier: str, consumer: str, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970.

        Raises:
            ConfigurationError: a name is empty or too long.
        """
        ConfigurationError.raise_if_any(
            f"the audit's {what} has no name, or one of more than {NAME_BYTES_MAX} bytes"
            for what, name in (("tier", tier), ("consumer", consumer))
            if not 0 < len(name.encode()) <= NAME_BYTES_MAX
        )
        self._tier = tier
        self._consumer = consumer
        self._clock = clock
        self._time_ms = 0
        # By topic and the mark without its sequence.
        self._tallies: dict[tuple[str, bytes], _Tally] = {}
        self._noted = 0
        self._next_look = 0
        self._is_full = False

    def note(self, topic: str, header: bytes | str | None) -> None:
        """Count a message by its header `audit`; one without a mark of ours is left out."""
        if not isinstance(header, bytes):
            return
        place, _, digits = header.rpartition(b":")
        tally = self._tallies.get((topic, place)) or self._open(topic, place, header)
        if tally is None or not digits.isdigit() or len(digits) > _DIGITS_MAX:
            return
        sequence = int(digits)
        if sequence <= SEQUENCE_MAX:
            tally.count += 1
            tally.sequences.add(sequence)
            self._noted += 1

    def take(self) -> list[AuditRecord]:
        """The events of all that was counted since they were taken last."""
        tallies = self._tallies.values()
        receipts = [
            Receipt(each.topic, each.producer, each.window_ms, each.count, each.sequences)
            for each in sorted(tallies, key=lambda it: (it.topic, it.producer, it.window_ms))
        ]
        # Later than before, so that no two events of this consumer are alike.
        self._time_ms = max(round(self._clock() * 1_000), self._time_ms + 1)
        received = Received(self._tier, self._consumer, self._time_ms, receipts)
        self._tallies = {}
        self._next_look = 0
        self._is_full = False
        return list(encode_received(received))

    @property
    def is_full(self) -> bool:
        """Whether so much is kept that it should be taken soon; cheap enough for each message."""
        if self._noted >= self._next_look:
            self._next_look = self._noted + _LOOK_EVERY
            self._is_full = (
                sum(_TALLY_BYTES + each.sequences.bytes_kept for each in self._tallies.values())
                > KEPT_BYTES_MAX
            )
        return self._is_full

    def _open(self, topic: str, place: bytes, header: bytes) -> "_Tally | None":
        mark = parse_mark(header)
        if mark is None:
            return None
        tally = self._tallies[topic, place] = _Tally(topic, mark.producer, mark.window_ms)
        return tally


class _Tally:
    """What was received of one topic, producer and window."""

    __slots__ = ("count", "producer", "sequences", "topic", "window_ms")

    def __init__(self, topic: str, producer: str, window_ms: int) -> None:
        self.topic = topic
        self.producer = producer
        self.window_ms = window_ms
        self.count = 0
        self.sequences = SequenceSet()
