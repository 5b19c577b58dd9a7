"""Fetch for consumers: encodes requests for one topic and decodes responses without a copy.

The layout of requests is in `logbroker.wire.fetch`. Responses:

    throttleTimeMs  int32
    errorCode       int16   from 7, as sessionId, int32
    topics          array of
        topic       string until 12, from 13 topicId, uuid
        partitions  array of
            partition, errorCode, highWatermark, lastStableOffset, logStartOffset (from 5):
                int32, int16, int64, int64, int64
            abortedTransactions   nullable array of producerId, firstOffset: int64, int64
            preferredReadReplica  int32   from 11
            records               nullable bytes

Requests are sessionless (KIP-227). The tagged fields of responses are skipped: they name a new
leader, which metadata names too.

Source: Kafka protocol guide, "Fetch API"; KIP-74, KIP-98, KIP-227, KIP-320, KIP-392, KIP-516.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from logbroker.wire.apis import ApiKey, is_flexible
from logbroker.wire.fetch import (
    FIRST_WITH_LAST_EPOCH,
    FIRST_WITH_LEADER_EPOCH,
    FIRST_WITH_LOG_START,
    FIRST_WITH_RACK,
    FIRST_WITH_SESSION,
    FIRST_WITH_TOPIC_ID,
    FIRST_WITHOUT_REPLICA_ID,
    NO_PREFERRED_REPLICA,
    NO_SESSION,
    NO_SESSION_EPOCH,
    TOPIC_BYTES_MIN,
)
from logbroker.wire.frame_reader import FrameReader
from logbroker.wire.primitives import (
    EMPTY_TAGS,
    encode_count,
    encode_nullable_string,
    encode_string,
)

SENT_VERSIONS: Final = (4, 17)
"""Lowest and highest version that consumers send; 18 adds only a field of replicas."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_CONSUMER: Final = -1
_NO_LAST_EPOCH: Final = -1
_UNKNOWN_LOG_START: Final = -1
_ABORTED: Final = struct.Struct(">qq")
_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")


class AbortedTransaction(NamedTuple):
    """An aborted transaction: the producer's records from this offset to its next control batch."""

    producer_id: int
    first_offset: int


class FetchParameters(NamedTuple):
    """A fetch of one partition; `topic_id` is sent from version 13, `topic` before."""

    topic: str
    topic_id: UUID | None
    partition: int
    leader_epoch: int
    offset: int
    bytes_max: int
    max_wait_ms: int
    isolation_level: int


class FetchedPartition(NamedTuple):
    """The response for one partition; `records` is a view into the frame.

    Unknown offsets are -1. The last batch of `records` may be truncated.
    """

    topic: str | None
    topic_id: UUID | None
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    preferred_replica: int
    records: memoryview


class FetchResponse(NamedTuple):
    """One response; the client waits `throttle_ms` before its next request."""

    correlation_id: int
    throttle_ms: int
    error_code: int
    partitions: list[FetchedPartition]


def encode_fetch_request(
    version: int,
    correlation_id: int,
    client_id: str | None,
    call: FetchParameters,
    *others: FetchParameters,
) -> bytes:
    """Return the frame of a request, size prefix included.

    `others` are further partitions of the topic; the limits of the request are those of `call`.
    """
    flexible = is_flexible(ApiKey.FETCH, version)
    tags = EMPTY_TAGS if flexible else b""
    topic = _encode_topic(version, call)
    partitions = b"".join(_encode_partition(version, each) + tags for each in (call, *others))
    body = b"".join(
        (
            _HEADER.pack(ApiKey.FETCH, version, correlation_id),
            encode_nullable_string(client_id, flexible=False),
            tags,
            _encode_limits(version, call),
            encode_count(1, flexible=flexible) + topic,
            encode_count(1 + len(others), flexible=flexible) + partitions,
            tags,
            encode_count(0, flexible=flexible) if version >= FIRST_WITH_SESSION else b"",
            encode_string("", flexible=flexible) if version >= FIRST_WITH_RACK else b"",
            tags,
        )
    )
    return _INT32.pack(len(body)) + body


def _encode_limits(version: int, call: FetchParameters) -> bytes:
    replica = _INT32.pack(_CONSUMER) if version < FIRST_WITHOUT_REPLICA_ID else b""
    session = (
        struct.pack(">ii", NO_SESSION, NO_SESSION_EPOCH) if version >= FIRST_WITH_SESSION else b""
    )
    # minBytes is 1: a consumer with a large lag gets full responses anyway.
    limits = struct.pack(">iiib", call.max_wait_ms, 1, call.bytes_max, call.isolation_level)
    return replica + limits + session


def _encode_topic(version: int, call: FetchParameters) -> bytes:
    if version < FIRST_WITH_TOPIC_ID:
        return encode_string(call.topic, flexible=is_flexible(ApiKey.FETCH, version))
    assert call.topic_id is not None, "without a topic id, an older version is sent"
    return call.topic_id.bytes


def _encode_partition(version: int, call: FetchParameters) -> bytes:
    parts = [_INT32.pack(call.partition)]
    if version >= FIRST_WITH_LEADER_EPOCH:
        parts.append(_INT32.pack(call.leader_epoch))
    parts.append(struct.pack(">q", call.offset))
    if version >= FIRST_WITH_LAST_EPOCH:
        parts.append(_INT32.pack(_NO_LAST_EPOCH))
    if version >= FIRST_WITH_LOG_START:
        parts.append(struct.pack(">q", _UNKNOWN_LOG_START))
    parts.append(_INT32.pack(call.bytes_max))
    return b"".join(parts)


class _FetchResponseDecoding(NamedTuple):
    """The fixed-size fields of one version's responses."""

    head: struct.Struct
    partition: struct.Struct
    is_flexible: bool
    has_topic_id: bool
    has_replica: bool


def _response_decoding(version: int) -> _FetchResponseDecoding:
    return _FetchResponseDecoding(
        head=struct.Struct(">ihi" if version >= FIRST_WITH_SESSION else ">i"),
        partition=struct.Struct(">ihqqq" if version >= FIRST_WITH_LOG_START else ">ihqq"),
        is_flexible=is_flexible(ApiKey.FETCH, version),
        has_topic_id=version >= FIRST_WITH_TOPIC_ID,
        has_replica=version >= FIRST_WITH_RACK,
    )


_DECODINGS: Final = {
    version: _response_decoding(version)
    for version in range(SENT_VERSIONS[0], SENT_VERSIONS[1] + 1)
}


def decode_fetch_response(version: int, frame: memoryview) -> FetchResponse:
    """Return the response in `frame` (without size prefix) to a request of this version.

    Raises:
        MalformedRequest: the frame is truncated or violates the protocol.
    """
    layout = _DECODINGS[version]
    reader = FrameReader(frame, 0, len(frame), is_flexible=layout.is_flexible)
    (correlation_id,) = reader.read_fields(_INT32)
    reader.skip_tags()
    throttle_ms, *error_and_session = reader.read_fields(layout.head)
    partitions: list[FetchedPartition] = []
    for _ in range(reader.read_count(TOPIC_BYTES_MIN)):
        _read_topic(reader, layout, frame, partitions)
    reader.skip_tags()
    error_code = error_and_session[0] if error_and_session else 0
    return FetchResponse(correlation_id, throttle_ms, error_code, partitions)


def _read_topic(
    reader: FrameReader,
    layout: _FetchResponseDecoding,
    frame: memoryview,
    partitions: list[FetchedPartition],
) -> None:
    topic, topic_id = (
        (None, reader.read_uuid()) if layout.has_topic_id else (reader.read_string(), None)
    )
    for _ in range(reader.read_count(layout.partition.size)):
        number, error_code, high_watermark, last_stable, *rest = reader.read_fields(
            layout.partition
        )
        # The arguments read from `reader`, so their order is the wire order.
        partitions.append(
            FetchedPartition(
                topic,
                topic_id,
                number,
                error_code,
                high_watermark,
                last_stable,
                log_start_offset=rest[0] if rest else _UNKNOWN_LOG_START,
                aborted=_read_aborted(reader),
                preferred_replica=(
                    reader.read_fields(_INT32)[0] if layout.has_replica else NO_PREFERRED_REPLICA
                ),
                records=_read_records(reader, frame),
            )
        )
        reader.skip_tags()
    reader.skip_tags()


def _read_aborted(reader: FrameReader) -> tuple[AbortedTransaction, ...]:
    aborted = []
    for _ in range(reader.read_nullable_count(_ABORTED.size)):
        aborted.append(AbortedTransaction(*reader.read_fields(_ABORTED)))
        reader.skip_tags()
    return tuple(aborted)


def _read_records(reader: FrameReader, frame: memoryview) -> memoryview:
    length = max(reader.read_nullable_length(), 0)
    start = reader.position
    reader.skip(length)
    return frame[start : start + length]
