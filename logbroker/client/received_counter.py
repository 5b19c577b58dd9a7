"""Counts the messages that a consumer received, by topic, producer and window."""

import time
from collections.abc import Callable
from typing import Final

from logbroker.client.audit_format.mark import SEQUENCE_MAX, parse_mark
from logbroker.client.audit_format.report import (
    NAME_BYTES_MAX,
    AuditRecord,
    ReceivedCount,
    ReceivedReport,
    encode_received,
)
from logbroker.client.audit_format.sequence_set import SequenceSet
from logbroker.errors import ConfigurationError

MEMORY_BYTES_MAX: Final = 16 * 1024 * 1024
"""The approximate memory of a full counter."""

_TALLY_BYTES: Final = 1_000
"""Memory for each topic, producer and window, without its set."""

_CHECK_EVERY: Final = 1_024
"""Messages between two checks of the memory: forged ones may add a page each, 700 KB in all."""

_DIGITS_MAX: Final = len(str(SEQUENCE_MAX))


class ReceivedCounter:
    """Counts the marked messages of one consumer; not thread-safe.

    `tier` names all consumers that do the same work, `consumer` this one among them.

    Have the records of `take_reports` acknowledged before offsets are committed. Then a crash
    causes duplicates, and never a received message that seems lost. Reporting early is harmless.
    """

    def __init__(self, tier: str, consumer: str, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns seconds since 1970.

        Raises:
            ConfigurationError: a name is empty or too long.
        """
        ConfigurationError.raise_if_any(
            f"invalid name of the audit's {what}: {len(name.encode())} bytes; "
            f"allowed: 1 to {NAME_BYTES_MAX}"
            for what, name in (("tier", tier), ("consumer", consumer))
            if not 0 < len(name.encode()) <= NAME_BYTES_MAX
        )
        self._tier = tier
        self._consumer = consumer
        self._clock = clock
        self._time_ms = 0
        # By topic and the mark without its sequence.
        self._tallies: dict[tuple[str, bytes], _Tally] = {}
        self._messages = 0
        self._next_check = 0
        self._is_full = False

    def count_message(self, topic: str, header: bytes | str | None) -> None:
        """Count a message by its header `audit`; ignore one without a valid mark."""
        if not isinstance(header, bytes):
            return
        place, _, digits = header.rpartition(b":")
        tally = self._tallies.get((topic, place)) or self._add_tally(topic, place, header)
        if tally is None or not digits.isdigit() or len(digits) > _DIGITS_MAX:
            return
        sequence = int(digits)
        if sequence <= SEQUENCE_MAX:
            tally.count += 1
            tally.sequences.add(sequence)
            self._messages += 1

    def take_reports(self) -> list[AuditRecord]:
        """Return reports of all messages counted since the previous call, and start again."""
        tallies = self._tallies.values()
        counts = [
            ReceivedCount(each.topic, each.producer, each.window_ms, each.count, each.sequences)
            for each in sorted(tallies, key=lambda it: (it.topic, it.producer, it.window_ms))
        ]
        # Always later than the previous time, so that no two reports of a consumer are equal.
        self._time_ms = max(round(self._clock() * 1_000), self._time_ms + 1)
        report = ReceivedReport(self._tier, self._consumer, self._time_ms, counts)
        self._tallies = {}
        self._next_check = 0
        self._is_full = False
        return list(encode_received(report))

    @property
    def is_full(self) -> bool:
        """Whether reports should be taken soon; cheap enough to check for each message."""
        if self._messages >= self._next_check:
            self._next_check = self._messages + _CHECK_EVERY
            self._is_full = (
                sum(_TALLY_BYTES + each.sequences.memory_bytes for each in self._tallies.values())
                > MEMORY_BYTES_MAX
            )
        return self._is_full

    def _add_tally(self, topic: str, place: bytes, header: bytes) -> "_Tally | None":
        mark = parse_mark(header)
        if mark is None:
            return None
        tally = self._tallies[topic, place] = _Tally(topic, mark.producer, mark.window_ms)
        return tally


class _Tally:
    """Messages received of one topic, producer and window."""

    __slots__ = ("count", "producer", "sequences", "topic", "window_ms")

    def __init__(self, topic: str, producer: str, window_ms: int) -> None:
        self.topic = topic
        self.producer = producer
        self.window_ms = window_ms
        self.count = 0
        self.sequences = SequenceSet()
