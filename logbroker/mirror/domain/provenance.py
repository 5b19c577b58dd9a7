"""Which records are copied, by their headers.

Two rules prevent loops between two mirrors in opposite directions:

- With an origin, the name of the source's data centre, only records whose header `origin` has that
  name are copied, and records without that header, which get it. Records of any other origin were
  brought here by a mirror.
- Without an origin, every record is copied, with an added header `mirrored-from` that has the
  source's cluster id.

In both cases, a record whose `mirrored-from` names the destination is skipped. Existing headers
keep their order, repeated names and empty values; the added header comes last.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from logbroker.client.audit_format.mark import AUDIT_HEADER

ORIGIN: Final = "origin"
MIRRORED_FROM: Final = "mirrored-from"

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


class SkipReason(StrEnum):
    """Why a record is not copied."""

    ORIGIN = "origin"
    """It is of another data centre, whose own mirror copies it."""
    LOOP = "loop"
    """It came from the destination."""
    UNREADABLE = "unreadable"
    """A header name is not UTF-8; see `logbroker.client.librdkafka`."""


class Provenance:
    """Decides for each record between two clusters, given by their ids."""

    def __init__(self, source_id: str, destination_id: str, origin: str | None = None) -> None:
        self._origin = None if origin is None else origin.encode()
        self._destination = destination_id.encode()
        added = source_id.encode() if self._origin is None else self._origin
        self._added = [(MIRRORED_FROM if self._origin is None else ORIGIN, added)]

    def inspect_headers(self, headers: Headers) -> tuple[Headers, SkipReason | None, bytes | None]:
        """Return a record's headers at the destination, why it is skipped, and its audit mark.

        The last `origin` counts, and the last mark; an `origin` without a value is ignored. All of
        it comes from one pass over the headers, because a mirror spends much of its time here.
        """
        origin: bytes | None = None
        mark: bytes | None = None
        reason: SkipReason | None = None
        for name, value in headers:
            if name == ORIGIN:
                origin = value
            elif name == AUDIT_HEADER:
                mark = value
            elif name == MIRRORED_FROM and value == self._destination:
                reason = SkipReason.LOOP
        if self._origin is None or not origin:
            return [*headers, *self._added], reason, mark
        if reason is None and origin != self._origin:
            reason = SkipReason.ORIGIN
        return headers, reason, mark
