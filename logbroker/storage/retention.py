"""Which segments a log has kept long enough: rules alone, no file and no clock."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple


class SegmentExtent(NamedTuple):
    """What the rules look at: offsets `[base_offset, next_offset)`, bytes, and age."""

    base_offset: int
    next_offset: int
    size_bytes: int
    newest_ms: int


class Reason(StrEnum):
    """Why a segment goes."""

    LOG_START = "its records are below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its newest record is older than retention.ms"


class RetentionRules(NamedTuple):
    """The settings of a topic and the moment they are applied at; -1 is no bound."""

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
    """A reason for each segment that goes: the oldest ones, up to the first that stays.

    `segments` are asked oldest first and no further; the log has `size_bytes` in all.

    Only what lies below the high watermark goes, and never an empty segment. Age is the
    newest record timestamp: old events that are written again with their own timestamps
    go at the next check, and one record from the future keeps its segment. By size a
    segment goes while the log without it still holds `retention_bytes`.

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
