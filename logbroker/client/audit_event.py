"""The monitoring events of the topic `audit`: what producers published and consumers received.

`{"kind":"published","topic","producer","windowStart","windowEnd","count","sequences"}`: all that
was acknowledged to a producer so far of its messages to a topic with times in [windowStart,
windowEnd). It may come again, with more, and in parts: what was published is the union of them.

`{"kind":"received","tier","consumer","time","received":[{"topic","producer","windowStart","count",
"sequences"},...]}`: what a consumer received since its event before; `count` has repeats in it. No
two events of a consumer are alike, so two with the same bytes are one that was written twice.

Times are RFC 3339 in UTC with milliseconds, `sequences` are the text of a `SequenceSet`. Written
are the members in this order and no white space; read are any JSON objects that have them.

Source: the 2011 paper, section 5: each producer periodically generates a monitoring event with the
number of messages that it published to each topic within a fixed window of time.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from logbroker.client.audit_mark import PRODUCER_BYTES_MAX, TIME_MS_MAX
from logbroker.client.sequence_set import SequenceSet

EVENT_BYTES_MAX: Final = 500_000
"""An event's size: half of the million that brokers take by default."""

READ_BYTES_MAX: Final = 1_000_000
"""A larger value is none of ours."""

EVENT_PAGES_MAX: Final = 8_192
"""Pages of all sets of one event, 4 MiB: however well they compress, reading one takes no more."""

NAME_BYTES_MAX: Final = PRODUCER_BYTES_MAX
"""Of a producer, a tier or a consumer."""

COUNT_MAX: Final = 2**53 - 1
"""The largest number that every reader of JSON tells exactly."""

WINDOW_MS_MAX: Final = 86_400_000
"""A day: a longer window would end too late to be of use."""

_T = TypeVar("_T")

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class AuditRecord(NamedTuple):
    """A record for the topic `audit`."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Published:
    """What was acknowledged to a producer of one topic and window; times in ms since 1970."""

    topic: str
    producer: str
    window_ms: int
    window_end_ms: int
    sequences: SequenceSet


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was received of one producer, topic and window; `count` has repeats in it."""

    topic: str
    producer: str
    window_ms: int
    count: int
    sequences: SequenceSet


@dataclass(frozen=True, slots=True)
class Received:
    """What one consumer of a tier received since it told so last."""

    tier: str
    consumer: str
    time_ms: int
    receipts: Sequence[Receipt]


def encode_published(published: Published) -> Iterator[AuditRecord]:
    """The events of it: several for a set that is too large for one, none for an empty set."""
    for part in published.sequences.parts():
        event = {
            "kind": "published",
            "topic": published.topic,
            "producer": published.producer,
            "windowStart": time_text(published.window_ms),
            "windowEnd": time_text(published.window_end_ms),
            "count": len(part),
            "sequences": part.encode(),
        }
        yield AuditRecord(published.producer.encode(), _json(event))


def encode_received(received: Received) -> Iterator[AuditRecord]:
    """The events of it: as few as stay within the bounds; none without receipts."""
    head = {
        "kind": "received",
        "tier": received.tier,
        "consumer": received.consumer,
        "time": time_text(received.time_ms),
    }
    # Its closing brace gives way to the list, which is put in as it is.
    opening = _json(head)[:-1] + b',"received":['
    for chunk in _chunks(received.receipts, EVENT_BYTES_MAX - len(opening)):
        yield AuditRecord(received.tier.encode(), opening + b",".join(chunk) + b"]}")


def decode(value: bytes | None) -> Published | Received | None:
    """The event of a record's value; None for what is none of ours, whoever wrote it."""
    if value is None or len(value) > READ_BYTES_MAX:
        return None
    try:
        # RecursionError: what is nested a thousand deep. ValueError: what is no JSON or no UTF-8,
        # and whatever the functions below refuse.
        event = json.loads(value)
        match _member(event, "kind", str):
            case "published":
                return _published(event)
            case "received":
                return _received(event)
    except (ValueError, RecursionError):
        pass
    return None


def time_text(time_ms: int) -> str:
    """A time as the events write it; one that no year has is the last that one has."""
    moment = _START + min(time_ms, TIME_MS_MAX) * _MS
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _chunks(receipts: Iterable[Receipt], bytes_max: int) -> Iterator[list[bytes]]:
    """The receipts as JSON, so many at a time as one event may have."""
    chunk: list[bytes] = []
    size = pages = 0
    for part in _parts(receipts):
        text = _receipt_json(part)
        # What is between it and the next, or behind the last one, counts as well.
        is_over = size + len(text) + 2 > bytes_max or pages + part.sequences.pages > EVENT_PAGES_MAX
        if chunk and is_over:
            yield chunk
            chunk, size, pages = [], 0, 0
        chunk.append(text)
        size += len(text) + 1
        pages += part.sequences.pages
    if chunk:
        yield chunk


def _parts(receipts: Iterable[Receipt]) -> Iterator[Receipt]:
    """The receipts with sets that fit into an event; repeats are counted in the first part."""
    for each in receipts:
        repeats = each.count - len(each.sequences)
        for part in each.sequences.parts():
            count = len(part) + repeats
            yield Receipt(each.topic, each.producer, each.window_ms, count, part)
            repeats = 0


def _receipt_json(receipt: Receipt) -> bytes:
    return _json(
        {
            "topic": receipt.topic,
            "producer": receipt.producer,
            "windowStart": time_text(receipt.window_ms),
            "count": receipt.count,
            "sequences": receipt.sequences.encode(),
        }
    )


def _published(event: dict[str, Any]) -> Published:
    start_ms, end_ms = _time(event, "windowStart"), _time(event, "windowEnd")
    if not 0 < end_ms - start_ms <= WINDOW_MS_MAX:
        raise ValueError(f"a window of {end_ms - start_ms} ms")
    sequences = SequenceSet.decode(_member(event, "sequences", str))
    if _count(event) != len(sequences):
        raise ValueError("the count is not that of the sequences")
    return Published(_topic(event), _name(event, "producer"), start_ms, end_ms, sequences)


def _received(event: dict[str, Any]) -> Received:
    receipts = []
    pages_left = EVENT_PAGES_MAX
    for each in _member(event, "received", list):
        receipt = _receipt(each, pages_left)
        pages_left -= receipt.sequences.pages
        receipts.append(receipt)
    tier, consumer = _name(event, "tier"), _name(event, "consumer")
    return Received(tier, consumer, _time(event, "time"), tuple(receipts))


def _receipt(event: Any, pages_max: int) -> Receipt:
    sequences = SequenceSet.decode(_member(event, "sequences", str), pages_max)
    count = _count(event)
    if not 0 < len(sequences) <= count:
        raise ValueError(f"{count} messages with {len(sequences)} different sequences")
    topic, producer = _topic(event), _name(event, "producer")
    return Receipt(topic, producer, _time(event, "windowStart"), count, sequences)


def _member(event: Any, name: str, kind: type[_T]) -> _T:
    found = event.get(name) if isinstance(event, dict) else None
    # Not isinstance: true is an int there.
    if type(found) is not kind:
        raise ValueError(f"{name} is not there, or no {kind.__name__}")
    return found


def _topic(event: Any) -> str:
    topic = _member(event, "topic", str)
    if not _TOPIC.fullmatch(topic):
        raise ValueError("no topic has such a name")
    return topic


def _name(event: Any, member: str) -> str:
    name = _member(event, member, str)
    # It may have a lone surrogate, which cannot be encoded: a ValueError as well.
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"{member} is empty or too long")
    return name


def _count(event: Any) -> int:
    count = _member(event, "count", int)
    if not 0 <= count <= COUNT_MAX:
        raise ValueError(f"a count of {count}")
    return count


def _time(event: Any, member: str) -> int:
    text = _member(event, member, str)
    if not _TIME.fullmatch(text):
        raise ValueError(f"{member} is no time of ours")
    time_ms = (datetime.fromisoformat(text) - _START) // _MS
    if time_ms < 0:
        raise ValueError(f"{member} is before 1970")
    return time_ms


def _json(event: dict[str, Any]) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode()
