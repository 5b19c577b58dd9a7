"""Audit reports, the records of the topic `audit`: what producers published and consumers received.

`{"kind":"published","topic","producer","windowStart","windowEnd","count","sequences"}` has all
messages acknowledged to the producer so far, of a topic and with times in [windowStart, windowEnd).
It may be repeated with more sequences, and split: the union of all reports is what was published.

`{"kind":"received","tier","consumer","time","received":[{"topic","producer","windowStart","count",
"sequences"},...]}` has what a consumer received since its previous report; `count` includes
duplicates. No two reports of a consumer are equal, so equal bytes are one report written twice.

Times are RFC 3339 in UTC with milliseconds, `sequences` is the text of a `SequenceSet`. Reports are
written with the members in this order and without white space; the reader accepts any JSON object
that has them.

Source: the 2011 paper, section 5: each producer periodically generates a monitoring event with the
number of messages that it published to each topic within a fixed window of time.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, TypeVar

from logbroker.client.audit_format.mark import PRODUCER_BYTES_MAX, TIME_MS_MAX
from logbroker.client.audit_format.sequence_set import SequenceSet

REPORT_BYTES_MAX: Final = 500_000
"""The largest report: half of the million bytes that brokers accept by default."""

READ_BYTES_MAX: Final = 1_000_000
"""A larger value is not a report."""

REPORT_PAGES_MAX: Final = 8_192
"""Pages of all sets of one report, 4 MiB: a limit of memory, however well they compress."""

NAME_BYTES_MAX: Final = PRODUCER_BYTES_MAX
"""The limit for the name of a producer, tier or consumer."""

COUNT_MAX: Final = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""

WINDOW_MS_MAX: Final = 86_400_000
"""One day: longer windows would be reported too late."""

_T = TypeVar("_T")

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
_START: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class AuditRecord(NamedTuple):
    """A record of the topic `audit`."""

    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class PublishedReport:
    """Messages acknowledged to a producer, of one topic and window; times in ms since 1970."""

    topic: str
    producer: str
    window_ms: int
    window_end_ms: int
    sequences: SequenceSet


@dataclass(frozen=True, slots=True)
class ReceivedCount:
    """Messages received of one producer, topic and window; `count` includes duplicates."""

    topic: str
    producer: str
    window_ms: int
    count: int
    sequences: SequenceSet


@dataclass(frozen=True, slots=True)
class ReceivedReport:
    """What a consumer of a tier received since its previous report."""

    tier: str
    consumer: str
    time_ms: int
    counts: Sequence[ReceivedCount]


def encode_published(report: PublishedReport) -> Iterator[AuditRecord]:
    """Yield the records of a report: several if it is too large for one, none for an empty set."""
    for part in report.sequences.parts():
        fields = {
            "kind": "published",
            "topic": report.topic,
            "producer": report.producer,
            "windowStart": time_text(report.window_ms),
            "windowEnd": time_text(report.window_end_ms),
            "count": len(part),
            "sequences": part.encode(),
        }
        yield AuditRecord(report.producer.encode(), _json(fields))


def encode_received(report: ReceivedReport) -> Iterator[AuditRecord]:
    """Yield the records of a report: as few as the limits allow, none without counts."""
    head = {
        "kind": "received",
        "tier": report.tier,
        "consumer": report.consumer,
        "time": time_text(report.time_ms),
    }
    # The counts are encoded one by one and inserted before the closing brace.
    opening = _json(head)[:-1] + b',"received":['
    for chunk in _chunks(report.counts, REPORT_BYTES_MAX - len(opening)):
        yield AuditRecord(report.tier.encode(), opening + b",".join(chunk) + b"]}")


def decode(value: bytes | None) -> PublishedReport | ReceivedReport | None:
    """Return the report of a record's value, which is untrusted; None if it is not a report."""
    if value is None or len(value) > READ_BYTES_MAX:
        return None
    try:
        # RecursionError: nested a thousand levels deep. ValueError: neither JSON nor UTF-8, or
        # rejected by the functions below.
        fields = json.loads(value)
        match _member(fields, "kind", str):
            case "published":
                return _published(fields)
            case "received":
                return _received(fields)
    except (ValueError, RecursionError):
        pass
    return None


def time_text(time_ms: int) -> str:
    """Return a time as reports write it; times after the year 9999 become its end."""
    moment = _START + min(time_ms, TIME_MS_MAX) * _MS
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _chunks(counts: Iterable[ReceivedCount], bytes_max: int) -> Iterator[list[bytes]]:
    """Yield the counts as JSON, in chunks that each fit into one report."""
    chunk: list[bytes] = []
    size = pages = 0
    for part in _parts(counts):
        text = _count_json(part)
        # Includes the separator, or what closes the list.
        is_over = (
            size + len(text) + 2 > bytes_max or pages + part.sequences.pages > REPORT_PAGES_MAX
        )
        if chunk and is_over:
            yield chunk
            chunk, size, pages = [], 0, 0
        chunk.append(text)
        size += len(text) + 1
        pages += part.sequences.pages
    if chunk:
        yield chunk


def _parts(counts: Iterable[ReceivedCount]) -> Iterator[ReceivedCount]:
    """Yield counts whose sets fit into a report; duplicates are in the first part."""
    for each in counts:
        duplicates = each.count - len(each.sequences)
        for part in each.sequences.parts():
            count = len(part) + duplicates
            yield ReceivedCount(each.topic, each.producer, each.window_ms, count, part)
            duplicates = 0


def _count_json(count: ReceivedCount) -> bytes:
    return _json(
        {
            "topic": count.topic,
            "producer": count.producer,
            "windowStart": time_text(count.window_ms),
            "count": count.count,
            "sequences": count.sequences.encode(),
        }
    )


def _published(fields: dict[str, Any]) -> PublishedReport:
    start_ms, end_ms = _time(fields, "windowStart"), _time(fields, "windowEnd")
    if not 0 < end_ms - start_ms <= WINDOW_MS_MAX:
        raise ValueError(f"invalid window: {end_ms - start_ms} ms")
    sequences = SequenceSet.decode(_member(fields, "sequences", str))
    if _message_count(fields) != len(sequences):
        raise ValueError("count does not match sequences")
    return PublishedReport(_topic(fields), _name(fields, "producer"), start_ms, end_ms, sequences)


def _received(fields: dict[str, Any]) -> ReceivedReport:
    counts = []
    pages_left = REPORT_PAGES_MAX
    for each in _member(fields, "received", list):
        count = _received_count(each, pages_left)
        pages_left -= count.sequences.pages
        counts.append(count)
    tier, consumer = _name(fields, "tier"), _name(fields, "consumer")
    return ReceivedReport(tier, consumer, _time(fields, "time"), tuple(counts))


def _received_count(fields: Any, pages_max: int) -> ReceivedCount:
    sequences = SequenceSet.decode(_member(fields, "sequences", str), pages_max)
    count = _message_count(fields)
    if not 0 < len(sequences) <= count:
        raise ValueError(f"count is {count}, sequences has {len(sequences)}")
    topic, producer = _topic(fields), _name(fields, "producer")
    return ReceivedCount(topic, producer, _time(fields, "windowStart"), count, sequences)


def _member(fields: Any, name: str, kind: type[_T]) -> _T:
    found = fields.get(name) if isinstance(fields, dict) else None
    # Not isinstance: bool is a subclass of int.
    if type(found) is not kind:
        raise ValueError(f"{name} is missing, or not of type {kind.__name__}")
    return found


def _topic(fields: Any) -> str:
    topic = _member(fields, "topic", str)
    if not _TOPIC.fullmatch(topic):
        raise ValueError("invalid topic name")
    return topic


def _name(fields: Any, member: str) -> str:
    name = _member(fields, member, str)
    # A lone surrogate cannot be encoded, which is a ValueError as well.
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX:
        raise ValueError(f"{member} is empty or too long")
    return name


def _message_count(fields: Any) -> int:
    count = _member(fields, "count", int)
    if not 0 <= count <= COUNT_MAX:
        raise ValueError(f"invalid count: {count}")
    return count


def _time(fields: Any, member: str) -> int:
    text = _member(fields, member, str)
    if not _TIME.fullmatch(text):
        raise ValueError(f"{member} is not a time")
    time_ms = (datetime.fromisoformat(text) - _START) // _MS
    if time_ms < 0:
        raise ValueError(f"{member} is before 1970")
    return time_ms


def _json(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
