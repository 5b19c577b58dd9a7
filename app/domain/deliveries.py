"""Deliveries as their owners see them: identity, status and attempts.

A delivery is one record of `delivery_log`: an event that is addressed to a webhook. Its id encodes
where the record is, so that it needs no row and no index: "dlv_" and base64 (RFC 4648, section 5,
without padding) of the partition and the offset as unsigned LEB128, the name of the data centre in
UTF-8, and four bytes of CRC-32 over these, so that a mistyped id is not that of another delivery.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from app.domain.delivery import LiveOutcome
from app.domain.leb128 import decode_numbers, encode_number
from app.domain.model import Failure

ID_PREFIX: Final = "dlv_"

ID_CHARS_MAX: Final = 200
"""More than the longest name of a data centre needs."""

_CRC_BYTES: Final = 4
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


class DeliveryStatus(StrEnum):
    """What became of a delivery, as far as it is known."""

    PENDING = "pending"
    """It waits for its first attempt, or for a retry."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """All attempts failed, or the receiver rejected the event permanently."""

    SKIPPED = "skipped"
    """Not attempted to the end; the reason says why."""


class AttemptTrigger(StrEnum):
    """What caused an attempt."""

    LIVE = "live"
    RETRY = "retry"
    """A scheduled retry: see `scheduled_retries`."""

    RESEND = "resend"


STATUS_OF_OUTCOME: Final = {
    LiveOutcome.DELIVERED: DeliveryStatus.SUCCEEDED,
    LiveOutcome.FAILED: DeliveryStatus.FAILED,
    LiveOutcome.SKIPPED: DeliveryStatus.SKIPPED,
    LiveOutcome.DISABLED: DeliveryStatus.SKIPPED,
}


class DeliveryPlace(NamedTuple):
    """The record of a delivery in the `delivery_log` of the data centre `origin`."""

    origin: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """A completed delivery attempt, the `number`th of its delivery.

    `time_ms` is when it ended; `status` and `reason` are those of a failure, `response` is the
    beginning of the body of a response that was no 2xx. `server` is the process that sent it.
    """

    number: int
    time_ms: int
    duration_ms: float | None
    status: int | None
    reason: str | None
    response: str | None = None
    server: str = ""
    trigger: AttemptTrigger = AttemptTrigger.LIVE

    @property
    def started_ms(self) -> int:
        """When it began; when it ended, if its duration is not known."""
        return self.time_ms - round(self.duration_ms or 0)


@dataclass(frozen=True, slots=True)
class DeliveryReplay:
    """A replay that sent the event of a delivery again; `failure` is None if it succeeded.

    `delivered_by_ms` is when the replay's progress shows that; None if it failed, or is not known.
    """

    replay_id: str
    failure: Failure | None = None
    delivered_by_ms: int | None = None


def format_delivery_id(place: DeliveryPlace) -> str:
    """Return the id of a delivery."""
    content = encode_number(place.partition) + encode_number(place.offset) + place.origin.encode()
    content += binascii.crc32(content).to_bytes(_CRC_BYTES)
    return ID_PREFIX + urlsafe_b64encode(content).decode().rstrip("=")


def parse_delivery_id(text: str) -> DeliveryPlace | None:
    """Return the place that an id names; None if `format_delivery_id` returns no such id."""
    if len(text) > ID_CHARS_MAX or not text.startswith(ID_PREFIX):
        return None
    encoded = text.removeprefix(ID_PREFIX)
    try:
        content = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        unread = iter(content[:-_CRC_BYTES])
        numbers = decode_numbers(unread)
        place = DeliveryPlace(
            partition=next(numbers), offset=next(numbers), origin=bytes(unread).decode()
        )
    except (ValueError, StopIteration):
        return None
    if place.partition > _PARTITION_MAX or place.offset > _OFFSET_MAX:
        return None
    # The decoder skips foreign characters, and a number has several encodings.
    return place if format_delivery_id(place) == text else None
