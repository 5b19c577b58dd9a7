"""What a mirror carries over and what it passes over: pure, by a record's headers alone.

Two rules keep two mirrors, one in each direction, from passing records round for ever:

- With an origin, the name of the source's data centre, a record is carried whose header `origin`
  names it, and one without that header, which gets it. A record of any other origin was brought
  here by a mirror.
- Without one, everything is carried, and a header `mirrored-from` with the source's cluster id
  is added.

By both, a record whose `mirrored-from` names the destination has been there and is passed over.
Headers that were there keep their order, repeated names and empty values; a new one comes last.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

ORIGIN: Final = "origin"
MIRRORED_FROM: Final = "mirrored-from"

Header = tuple[str, bytes | None]
Headers = Sequence[Header]


class PassedOver(StrEnum):
    """Why a record stays behind."""

    ORIGIN = "origin"
    """It was made in another data centre, whose own mirror brings it."""
    LOOP = "loop"
    """It came from the destination."""
    UNREADABLE = "unreadable"
    """The name of a header is not UTF-8; see `logbroker.client.librdkafka`."""


class Provenance:
    """Decides for each record between two clusters, named by their ids."""

    def __init__(self, source_id: str, destination_id: str, origin: str | None = None) -> None:
        self._origin = None if origin is None else origin.encode()
        self._destination = destination_id.encode()
        added = source_id.encode() if self._origin is None else self._origin
        self._added = [(MIRRORED_FROM if self._origin is None else ORIGIN, added)]

    def carried(self, headers: Headers | None) -> Headers | PassedOver:
        """The headers that a record has at the destination, or why it does not go there.

        Where `origin` is repeated, the last one counts; one without a value is none.
        """
        if not headers:
            return self._added
        origin: bytes | None = None
        for name, value in headers:
            if name == ORIGIN:
                origin = value
            elif name == MIRRORED_FROM and value == self._destination:
                return PassedOver.LOOP
        if self._origin is None or not origin:
            return [*headers, *self._added]
        return headers if origin == self._origin else PassedOver.ORIGIN
