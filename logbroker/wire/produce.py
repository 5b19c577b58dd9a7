"""Produce: decodes requests without copying records, and encodes responses.

    transactionalId  nullable string
    acks             int16   0, 1 or -1
    timeoutMs        int32
    topics           array of
        name         string
        partitions   array of
            index    int32
            records  nullable bytes

In flexible versions (from 9) lengths are compact, and partitions, topics and the request end in
tagged fields. Versions 3 to 11 are supported; all of them identify topics by name.

A producer repeats the same bytes around its batches. `ProduceDecoder` stores them as a
`ProduceTemplate` and decodes matching requests with one `unpack_from`. That is several times
faster than decoding field by field, and this is the hot path of the broker.

Source: Kafka protocol guide, "Produce API"; KIP-98, KIP-467, KIP-482.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

from logbroker.wire.apis import SERVED, ApiKey, is_flexible
from logbroker.wire.error_codes import MESSAGE_CHARS_MAX
from logbroker.wire.frame_reader import FrameReader
from logbroker.wire.primitives import (
    EMPTY_TAGS,
    encode_count,
    encode_nullable_string,
    encode_string,
    encode_uvarint,
)
from logbroker.wire.request import open_request

TOPIC_BYTES_MIN: Final = 3
PARTITION_BYTES_MIN: Final = 5

TEMPLATES_MAX: Final = 1024
"""Per connection; a producer needs one for each partition that it writes to."""

TEMPLATE_BYTES_MAX: Final = 1024
"""Requests with more bytes around the batch (a huge client id) get no template."""

SHAPES_MAX: Final = 4
"""Per connection; one for each topic name length and each width of a batch length."""

FIRST_WITH_LOG_START: Final = 5
FIRST_WITH_MESSAGE: Final = 8

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT64_BYTES: Final = 8
_PARTITION_AND_CODE: Final = struct.Struct(">ih")
_INT32: Final = struct.Struct(">i")
_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")
_VERSIONS_BYTES: Final = 4
_MIDDLE_START: Final = 8
_TAGS: Final = struct.Struct(">3s")
_NO_TAGS: Final = (EMPTY_TAGS * _TAGS.size,)
"""The end of a flexible request: no tagged fields of partition, topic and request."""


class ProduceBatch(NamedTuple):
    """The record data of one partition, `buffer[start:end]`; null is -1, -1."""

    topic: str
    partition: int
    start: int
    end: int


class ProduceOutcome(NamedTuple):
    """The response for one batch; missing offsets and times are -1.

    `record_errors` has the index in the batch of each invalid record, and what is wrong with it.
    """

    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()


class ProduceRequest:
    """One request.

    A request with a `template` has exactly one batch, `buffer[start:end]`, and is owned by the
    template: the next request of the template overwrites `correlation_id`, `start` and `end`.
    A request without a template has `start` and `end` -1.
    """

    __slots__ = (
        "_batches",
        "acks",
        "api_version",
        "correlation_id",
        "end",
        "start",
        "template",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        correlation_id: int,
        api_version: int,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        batches: list[ProduceBatch],
    ) -> None:
        self.correlation_id = correlation_id
        self.api_version = api_version
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.template: ProduceTemplate | None = None
        self.start = -1
        self.end = -1
        self._batches = batches

    @property
    def batches(self) -> list[ProduceBatch]:
        """The batches in wire order."""
        if self.template is None:
            return self._batches
        return [self._batches[0]._replace(start=self.start, end=self.end)]

    def detach(self) -> "ProduceRequest":
        """Return a copy that the next request of the template does not overwrite."""
        return ProduceRequest(
            self.correlation_id,
            self.api_version,
            self.transactional_id,
            self.acks,
            self.timeout_ms,
            self.batches,
        )


class ProduceTemplate:
    """The common part of requests that differ only in correlation id and batch.

    `cached_partition` is the server's object for `topic` and `partition`, of a type that this
    package does not know; None until the server sets it.
    """

    __slots__ = (
        "_has_log_start",
        "_middle",
        "_pack",
        "_size",
        "_tail",
        "cached_partition",
        "partition",
        "request",
        "topic",
        "versions",
    )

    def __init__(self, versions: bytes, request: ProduceRequest) -> None:
        (batch,) = request.batches
        self.versions = versions
        self.request = request
        self.topic = batch.topic
        self.partition = batch.partition
        self.cached_partition: Any = None
        layout = _RESPONSE_ENCODINGS[request.api_version]
        response = self.encode_outcome(0, ProduceOutcome(0, 0, 0, 0))
        self._tail = layout.encode_errors((), None) + layout.tags + layout.end
        numbers_start = len(response) - len(self._tail) - layout.numbers.size
        self._size = response[: _INT32.size]
        self._middle = response[_MIDDLE_START:numbers_start]
        self._has_log_start = request.api_version >= FIRST_WITH_LOG_START
        self._pack = struct.Struct(
            f">4si{len(self._middle)}s{layout.numbers.format[1:]}{len(self._tail)}s"
        ).pack

    def encode_success(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the response for an appended batch, size prefix included."""
        if self._has_log_start:
            return self._pack(
                self._size,
                correlation_id,
                self._middle,
                base_offset,
                log_append_time_ms,
                log_start_offset,
                self._tail,
            )
        return self._pack(
            self._size, correlation_id, self._middle, base_offset, log_append_time_ms, self._tail
        )

    def encode_outcome(self, correlation_id: int, outcome: ProduceOutcome) -> bytes:
        """Return the response with any outcome, size prefix included."""
        batch = ProduceBatch(self.topic, self.partition, -1, -1)
        return _encode_response(correlation_id, self.request.api_version, [(batch, outcome)])


class _Shape(NamedTuple):
    """The positions of the parts of a request that matches a template.

    `unpack` returns API key and version, correlation id, the bytes up to the length field of the
    records, and that field. The records begin `records_after` bytes after the frame's start.
    """

    unpack: Callable[[memoryview, int], tuple[Any, ...]]
    records_after: int
    tail_bytes: int


class ProduceDecoder:
    """Decodes the Produce requests of one connection, fast if they match a template.

    The bytes between correlation id and records are the key of a template, so a producer of many
    partitions hits one template per partition. If the length or the bytes after the records
    differ from the template, the request is decoded field by field.
    """

    __slots__ = ("_shapes", "_templates")

    def __init__(self) -> None:
        self._shapes: list[_Shape] = []
        self._templates: dict[bytes, ProduceTemplate] = {}

    def decode(self, buffer: memoryview, start: int, end: int) -> ProduceRequest:
        """Decode the request in the frame `buffer[start:end]`; its batches are ranges of `buffer`.

        The caller has checked that the frame's API key is Produce.

        Raises:
            MalformedRequest: the frame is cut or breaks a rule of the protocol.
            UnsupportedRequest: the version is not supported.
        """
        for unpack, records_after, tail_bytes in self._shapes:
            records_start = start + records_after
            length = end - tail_bytes - records_start
            if length < 0:
                continue
            versions, correlation_id, middle, length_field = unpack(buffer, start)
            template = self._templates.get(middle)
            if template is None or template.versions != versions:
                continue
            if tail_bytes:
                if (
                    length_field != encode_uvarint(length + 1)
                    or _TAGS.unpack_from(buffer, end - tail_bytes) != _NO_TAGS
                ):
                    continue
            elif length_field != length:
                continue
            request = template.request
            request.correlation_id = correlation_id
            request.start = records_start
            request.end = records_start + length
            return request
        return self._decode_fields(buffer, start, end)

    def forget_partitions(self, partitions: Collection[object]) -> None:
        """Clear the `cached_partition` of every template where it is one of these."""
        for template in self._templates.values():
            if template.cached_partition in partitions:
                template.cached_partition = None

    def forget_all_partitions(self) -> None:
        """Clear the `cached_partition` of every template."""
        for template in self._templates.values():
            template.cached_partition = None

    def _decode_fields(self, buffer: memoryview, start: int, end: int) -> ProduceRequest:
        request = decode_produce_request(buffer, start, end)
        shape_and_middle = _template_parts(request, buffer, start, end)
        if shape_and_middle is None:
            return request
        shape, middle = shape_and_middle
        if shape not in self._shapes:
            self._shapes = [shape, *self._shapes][:SHAPES_MAX]
        (batch,) = request.batches
        template = self._template(bytes(buffer[start : start + _VERSIONS_BYTES]), middle, request)
        known = template.request
        known.correlation_id = request.correlation_id
        known.start = batch.start
        known.end = batch.end
        return known

    def _template(self, versions: bytes, middle: bytes, request: ProduceRequest) -> ProduceTemplate:
        template = self._templates.get(middle)
        if template is not None and template.versions == versions:
            return template
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        template = self._templates[middle] = ProduceTemplate(versions, request)
        request.template = template
        return template


def _template_parts(
    request: ProduceRequest, buffer: memoryview, start: int, end: int
) -> tuple[_Shape, bytes] | None:
    """Return shape and middle of a request; None if it cannot become a template.

    Overlong varints and tagged fields are legal, but no client sends them.
    """
    if len(request.batches) != 1 or request.batches[0].start < 0:
        return None
    (batch,) = request.batches
    length = batch.end - batch.start
    if is_flexible(ApiKey.PRODUCE, request.api_version):
        length_field, tail_bytes = encode_uvarint(length + 1), _TAGS.size
    else:
        length_field, tail_bytes = _INT32.pack(length), 0
    middle_start = start + _MIDDLE_START
    middle_end = batch.start - len(length_field)
    if (
        batch.end + tail_bytes != end
        or buffer[middle_end : batch.start] != length_field
        or middle_end - middle_start > TEMPLATE_BYTES_MAX
    ):
        return None
    shape = _shape(middle_end - middle_start, len(length_field), tail_bytes)
    return shape, bytes(buffer[middle_start:middle_end])


@lru_cache(maxsize=1024)  # connections of one client share their shapes
def _shape(middle_bytes: int, length_bytes: int, tail_bytes: int) -> _Shape:
    length_field = f"{length_bytes}s" if tail_bytes else "i"
    layout = struct.Struct(f">{_VERSIONS_BYTES}si{middle_bytes}s{length_field}")
    return _Shape(layout.unpack_from, layout.size, tail_bytes)


def decode_produce_request(buffer: memoryview, start: int, end: int) -> ProduceRequest:
    """Decode the frame `buffer[start:end]` field by field; see `ProduceDecoder.decode`."""
    header, reader = open_request(buffer, start, end)
    transactional_id = reader.read_nullable_string()
    acks, timeout_ms = reader.read_fields(_ACKS_AND_TIMEOUT)
    batches = [
        batch for _ in range(reader.read_count(TOPIC_BYTES_MIN)) for batch in _read_topic(reader)
    ]
    reader.skip_tags()
    return ProduceRequest(
        header.correlation_id, header.api_version, transactional_id, acks, timeout_ms, batches
    )


def _read_topic(reader: FrameReader) -> Iterator[ProduceBatch]:
    topic = reader.read_string()
    for _ in range(reader.read_count(PARTITION_BYTES_MIN)):
        (partition,) = reader.read_fields(_INT32)
        length = reader.read_nullable_length()
        start = reader.position
        if length < 0:
            yield ProduceBatch(topic, partition, -1, -1)
        else:
            reader.skip(length)
            yield ProduceBatch(topic, partition, start, start + length)
        reader.skip_tags()
    reader.skip_tags()


def encode_produce_response(request: ProduceRequest, outcomes: Sequence[ProduceOutcome]) -> bytes:
    """Return the response, size prefix included; `outcomes` has the order of `request.batches`."""
    pairs = list(zip(request.batches, outcomes, strict=True))
    return _encode_response(request.correlation_id, request.api_version, pairs)


def set_throttle_time(response: bytes, api_version: int, throttle_ms: int) -> bytes:
    """Return a response of this version with another throttle time, the last field before tags."""
    end = len(response) - len(_RESPONSE_ENCODINGS[api_version].tags)
    return response[: end - _INT32.size] + _INT32.pack(throttle_ms) + response[end:]


class _ProduceResponseEncoding(NamedTuple):
    """The fixed parts of one version's responses; `numbers` are offset, time, log start."""

    flexible: bool
    numbers: struct.Struct
    has_message: bool
    tags: bytes
    end: bytes

    def encode_errors(self, record_errors: Sequence[tuple[int, str]], message: str | None) -> bytes:
        """Encode the fields after a partition's numbers (KIP-467)."""
        if not self.has_message:
            return b""
        pieces = [encode_count(len(record_errors), flexible=self.flexible)]
        for index, why in record_errors:
            pieces += (_INT32.pack(index), self._encode_text(why), self.tags)
        pieces += (self._encode_text(message), self.tags)
        return b"".join(pieces)

    def _encode_text(self, text: str | None) -> bytes:
        return encode_nullable_string(text and text[:MESSAGE_CHARS_MAX], flexible=self.flexible)

    def encode_partition(self, batch: ProduceBatch, outcome: ProduceOutcome) -> bytes:
        """Encode the response for one batch."""
        numbers = (outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset)
        return (
            _PARTITION_AND_CODE.pack(batch.partition, outcome.error_code)
            + self.numbers.pack(*numbers[: self.numbers.size // _INT64_BYTES])
            + self.encode_errors(outcome.record_errors, outcome.error_message)
        )


def _response_encoding(api_version: int) -> _ProduceResponseEncoding:
    flexible = is_flexible(ApiKey.PRODUCE, api_version)
    numbers = struct.Struct(">qqq" if api_version >= FIRST_WITH_LOG_START else ">qq")
    tags = EMPTY_TAGS if flexible else b""
    not_throttled = _INT32.pack(0)
    return _ProduceResponseEncoding(
        flexible, numbers, api_version >= FIRST_WITH_MESSAGE, tags, not_throttled + tags
    )


_RESPONSE_ENCODINGS: Final = {
    version: _response_encoding(version)
    for version in range(SERVED[ApiKey.PRODUCE][0], SERVED[ApiKey.PRODUCE][1] + 1)
}


def _encode_response(
    correlation_id: int, api_version: int, pairs: Sequence[tuple[ProduceBatch, ProduceOutcome]]
) -> bytes:
    layout = _RESPONSE_ENCODINGS[api_version]
    topics = [(topic, list(group)) for topic, group in groupby(pairs, lambda pair: pair[0].topic)]
    pieces = [layout.tags, encode_count(len(topics), flexible=layout.flexible)]
    for topic, group in topics:
        pieces.append(encode_string(topic, flexible=layout.flexible))
        pieces.append(encode_count(len(group), flexible=layout.flexible))
        pieces += [layout.encode_partition(batch, outcome) for batch, outcome in group]
        pieces.append(layout.tags)
    pieces.append(layout.end)
    body = b"".join(pieces)
    return _SIZE_AND_CORRELATION_ID.pack(_INT32.size + len(body), correlation_id) + body
