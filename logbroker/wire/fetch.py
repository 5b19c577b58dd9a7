"""Fetch: decodes requests and encodes responses whose records are spans of segment files.

    replicaId       int32   until 14
    maxWaitMs       int32
    minBytes        int32
    maxBytes        int32
    isolationLevel  int8
    sessionId       int32   from 7, as sessionEpoch, int32
    topics          array of
        topic       string until 12, from 13 topicId, uuid
        partitions  array of
            partition, currentLeaderEpoch (from 9), fetchOffset, lastFetchedEpoch (from 12),
            logStartOffset (from 5), partitionMaxBytes: int32, int32, int64, int32, int64, int32
    forgottenTopics array of topic and its partitions, from 7
    rackId          string  from 11

From version 12 lengths are compact and structures end in tagged fields; clusterId and, from 15,
replicaState are tagged fields that only replicas send. Responses are sessionless (KIP-227):
session id 0, and every requested partition in every response.

Source: Kafka protocol guide, "Fetch API"; KIP-74, KIP-227, KIP-320, KIP-392, KIP-516, KIP-903.
"""

import struct
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from logbroker.records.file_span import FileSpan
from logbroker.wire.apis import SERVED, ApiKey, is_flexible
from logbroker.wire.frame_reader import UUID_BYTES, FrameReader
from logbroker.wire.primitives import EMPTY_TAGS, encode_count, encode_string
from logbroker.wire.request import open_request
from logbroker.wire.response_queue import ResponseParts

FIRST_WITH_LOG_START: Final = 5
FIRST_WITH_SESSION: Final = 7
FIRST_WITH_LEADER_EPOCH: Final = 9
FIRST_WITH_RACK: Final = 11
FIRST_WITH_LAST_EPOCH: Final = 12
FIRST_WITH_TOPIC_ID: Final = 13
FIRST_WITHOUT_REPLICA_ID: Final = 15

NO_SESSION: Final = 0
NO_SESSION_EPOCH: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_PREFERRED_REPLICA: Final = -1

TOPIC_BYTES_MIN: Final = 3
NUMBER_BYTES: Final = 4

_INT32: Final = struct.Struct(">i")


class FetchPartition(NamedTuple):
    """The request for one partition; `topic` is set until version 12, then `topic_id`."""

    topic: str | None
    topic_id: UUID | None
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    bytes_max: int


class FetchRequest(NamedTuple):
    """One request; the order of its partitions is significant (KIP-74). Sizes are in bytes."""

    correlation_id: int
    api_version: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]


class FetchOutcome(NamedTuple):
    """The response for one partition; with an error, the offsets are -1."""

    partition: FetchPartition
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: FileSpan | None


class _RequestLayout(NamedTuple):
    """The fixed-size fields of one version's requests."""

    limits: struct.Struct
    partition: struct.Struct
    has_topic_id: bool
    has_session: bool
    has_rack: bool


def _request_layout(version: int) -> _RequestLayout:
    # "x" skips unused fields: replica id, isolation level (without transactions both levels read
    # the same records), last fetched epoch and log start offset.
    replica = "4x" if version < FIRST_WITHOUT_REPLICA_ID else ""
    session = "ii" if version >= FIRST_WITH_SESSION else ""
    leader_epoch = "i" if version >= FIRST_WITH_LEADER_EPOCH else ""
    last_epoch = "4x" if version >= FIRST_WITH_LAST_EPOCH else ""
    log_start = "8x" if version >= FIRST_WITH_LOG_START else ""
    return _RequestLayout(
        limits=struct.Struct(f">{replica}iiix{session}"),
        partition=struct.Struct(f">i{leader_epoch}q{last_epoch}{log_start}i"),
        has_topic_id=version >= FIRST_WITH_TOPIC_ID,
        has_session=version >= FIRST_WITH_SESSION,
        has_rack=version >= FIRST_WITH_RACK,
    )


_VERSIONS: Final = range(SERVED[ApiKey.FETCH][0], SERVED[ApiKey.FETCH][1] + 1)
_REQUEST_LAYOUTS: Final = {version: _request_layout(version) for version in _VERSIONS}


def decode_fetch_request(buffer: memoryview, start: int, end: int) -> FetchRequest:
    """Return the request in the frame `buffer[start:end]`.

    Raises:
        MalformedRequest: the frame is truncated or violates the protocol.
        UnsupportedRequest: the version is not supported.
    """
    header, reader = open_request(buffer, start, end)
    layout = _REQUEST_LAYOUTS[header.api_version]
    max_wait_ms, min_bytes, max_bytes, *session = reader.read_fields(layout.limits)
    session_id, session_epoch = session or (NO_SESSION, NO_SESSION_EPOCH)
    partitions: list[FetchPartition] = []
    for _ in range(reader.read_count(TOPIC_BYTES_MIN)):
        _read_topic(reader, layout, partitions)
    if layout.has_session:
        _skip_forgotten_topics(reader, layout)
    if layout.has_rack:
        reader.read_string()
    reader.skip_tags()
    return FetchRequest(
        header.correlation_id,
        header.api_version,
        max_wait_ms,
        min_bytes,
        max_bytes,
        session_id,
        session_epoch,
        partitions,
    )


def _read_topic(
    reader: FrameReader, layout: _RequestLayout, partitions: list[FetchPartition]
) -> None:
    topic, topic_id = (
        (None, reader.read_uuid()) if layout.has_topic_id else (reader.read_string(), None)
    )
    fields = layout.partition
    for _ in range(reader.read_count(fields.size)):
        numbers = reader.read_fields(fields)
        if len(numbers) == 4:
            partition, leader_epoch, fetch_offset, bytes_max = numbers
        else:
            partition, fetch_offset, bytes_max = numbers
            leader_epoch = NO_LEADER_EPOCH
        partitions.append(
            FetchPartition(topic, topic_id, partition, leader_epoch, fetch_offset, bytes_max)
        )
        reader.skip_tags()
    reader.skip_tags()


def _skip_forgotten_topics(reader: FrameReader, layout: _RequestLayout) -> None:
    """Skip the forgotten topics of a fetch session: sessions are not supported."""
    for _ in range(reader.read_count(TOPIC_BYTES_MIN)):
        if layout.has_topic_id:
            reader.skip(UUID_BYTES)
        else:
            reader.read_string()
        reader.skip(NUMBER_BYTES * reader.read_count(NUMBER_BYTES))
        reader.skip_tags()


class _FetchResponseEncoding(NamedTuple):
    """The fixed parts of one version's responses.

    `partition` holds number, error code, high watermark, last stable offset and, in newer
    versions, log start offset; `before_records` no aborted transactions and no preferred replica.
    """

    flexible: bool
    partition: struct.Struct
    has_log_start: bool
    before_records: bytes
    has_error_code: bool
    tags: bytes


def _response_encoding(version: int) -> _FetchResponseEncoding:
    flexible = is_flexible(ApiKey.FETCH, version)
    has_log_start = version >= FIRST_WITH_LOG_START
    replica = _INT32.pack(NO_PREFERRED_REPLICA) if version >= FIRST_WITH_RACK else b""
    return _FetchResponseEncoding(
        flexible=flexible,
        partition=struct.Struct(">ihqqq" if has_log_start else ">ihqq"),
        has_log_start=has_log_start,
        before_records=encode_count(-1, flexible=flexible) + replica,
        has_error_code=version >= FIRST_WITH_SESSION,
        tags=EMPTY_TAGS if flexible else b"",
    )


_RESPONSE_ENCODINGS: Final = {version: _response_encoding(version) for version in _VERSIONS}
_ERROR_AND_SESSION: Final = struct.Struct(">hi")


def encode_fetch_response(
    request: FetchRequest,
    outcomes: Sequence[FetchOutcome],
    error_code: int = 0,
    throttle_ms: int = 0,
) -> ResponseParts:
    """Return the response, size prefix included; the records are spans between bytes.

    Before version 7, responses have no `error_code`.
    """
    layout = _RESPONSE_ENCODINGS[request.api_version]
    head = _INT32.pack(request.correlation_id) + layout.tags + _INT32.pack(throttle_ms)
    if layout.has_error_code:
        head += _ERROR_AND_SESSION.pack(error_code, NO_SESSION)
    pieces: ResponseParts = [head]
    topics = [(topic, list(group)) for topic, group in groupby(outcomes, _topic_of)]
    pieces.append(encode_count(len(topics), flexible=layout.flexible))
    for topic, group in topics:
        pieces.append(_encode_topic(topic, layout))
        pieces.append(encode_count(len(group), flexible=layout.flexible))
        for outcome in group:
            pieces += _encode_partition(outcome, layout)
        pieces.append(layout.tags)
    pieces.append(layout.tags)
    return _join_bytes(pieces)


def _topic_of(outcome: FetchOutcome) -> str | UUID:
    topic, topic_id = outcome.partition[:2]
    if topic is not None:
        return topic
    assert topic_id is not None
    return topic_id


def _encode_topic(topic: str | UUID, layout: _FetchResponseEncoding) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    return encode_string(topic, flexible=layout.flexible)


def _encode_partition(outcome: FetchOutcome, layout: _FetchResponseEncoding) -> ResponseParts:
    wanted, error_code, high_watermark, log_start_offset, records = outcome
    numbers = [wanted.partition, error_code, high_watermark, high_watermark]
    if layout.has_log_start:
        numbers.append(log_start_offset)
    before = layout.partition.pack(*numbers) + layout.before_records
    if records is None or not records.length:
        return [before, encode_count(0, flexible=layout.flexible), layout.tags]
    length = encode_count(records.length, flexible=layout.flexible)
    return [before, length, records, layout.tags]


def _join_bytes(pieces: ResponseParts) -> ResponseParts:
    """Join adjacent bytes and prepend the total size."""
    size = sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in pieces)
    run = [_INT32.pack(size)]
    parts: ResponseParts = []
    for piece in pieces:
        if isinstance(piece, bytes):
            run.append(piece)
        else:
            parts += [b"".join(run), piece]
            run = []
    if tail := b"".join(run):
        parts.append(tail)
    return parts
