"""Retention rules: which segments of a log to delete; no I/O and no clock."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class SegmentExtent(NamedTuple):
    """The input of the rules: offsets `[base_offset, next_offset)`, size and newest timestamp."""

    base_offset: int
    next_offset: int
    size_bytes: int
    newest_ms: int


class Reason(StrEnum):
    """Why a segment is deleted."""

    LOG_START = "its records are below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its newest record is older than retention.ms"


class RetentionRules(NamedTuple):
    """The retention settings of a topic and the current time; -1 is no limit."""

    retention_ms: int
    retention_bytes: int
    now_ms: int


def segments_to_delete(
    segments: Iterable[SegmentExtent],
    size_bytes: int,
    log_start_offset: int,
    high_watermark: int,
    rules: RetentionRules,
) -> list[Reason]:
    """Return the reason for each segment to delete: the oldest, up to the first to keep.

    `segments` are iterated oldest first, up to the first to keep; the log has `size_bytes`.

    Only segments below the high watermark are deleted, and never an empty one. The age is that
    of the newest record timestamp: old events that are written again with their timestamps are
    deleted at the next check, and a record from the future keeps its segment. By size, a
    segment is deleted if the log without it has at least `retention_bytes`.

    Source: Kafka, `UnifiedLog.deleteOldSegments`.
    """
    surplus = size_bytes - rules.retention_bytes
    reasons: list[Reason] = []
    for segment in segments:
        surplus -= segment.size_bytes
        reason = _reason(segment, log_start_offset, surplus, rules)
        if reason is None or segment.next_offset > high_watermark or not segment.size_bytes:
            break
        reasons.append(reason)
    return reasons


def _reason(
    segment: SegmentExtent, log_start_offset: int, surplus: int, rules: RetentionRules
) -> Reason | None:
    if segment.next_offset <= log_start_offset:
        return Reason.LOG_START
    if rules.retention_bytes >= 0 and surplus >= 0:
        return Reason.SIZE
    if rules.retention_ms >= 0 and rules.now_ms - segment.newest_ms > rules.retention_ms:
        return Reason.TIME
    return None
