"""A proxy between clients and a broker that drops single records.

It sits between the two and speaks their protocol: addresses in the answers of the broker are
replaced by its own, so that its clients stay behind it, and records are taken out of the answers
to Fetch. A batch that loses some keeps its offsets, as a compacted one does, and has a right CRC;
one that loses none passes as it is.
"""

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from threading import Lock, Thread
from typing import Any, NamedTuple, Self
from uuid import UUID

from crc32c import crc32c
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.fetch import FetchResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from logbroker.records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
    iter_batches,
)
from logbroker.records.compression import Codec, decompress
from logbroker.records.record import RECORDS_BYTES_MAX, Record, decode_records
from logbroker.records.varint import read_varint
from logbroker.wire.apis import ApiKey
from logbroker.wire.messages import encode_message
from logbroker.wire.request import RequestHeader

SIZE = struct.Struct(">i")
REQUEST_START = struct.Struct(">hhi")

RESPONSES: dict[ApiKey, type[ApiMessage]] = {
    ApiKey.FETCH: FetchResponse,
    ApiKey.METADATA: MetadataResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
}


class Place(NamedTuple):
    """The position of a record."""

    topic: str
    partition: int
    offset: int


class LossyLink:
    """Forwards everything between clients of `port` and a broker, except some records.

    `loses` says of a place whether its record never arrives; it says the same whenever it is asked.
    A context manager: at its end every connection is closed.
    """

    def __init__(self, target_port: int, loses: Callable[[Place], bool]) -> None:
        self._target_port = target_port
        self._loses = loses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.lost: dict[Place, Record] = {}
        """All dropped records."""
        self._topics: dict[UUID, str] = {}
        self._sockets: set[socket.socket] = set()
        self._changing = Lock()
        self._threads = [Thread(target=self._accept, daemon=True)]

    @property
    def address(self) -> str:
        """`HOST:PORT` to connect to."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # `close` does not wake the accepting thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        with self._changing:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                near.close()
                continue
            asked: dict[int, RequestHeader] = {}
            with self._changing:
                self._sockets |= {near, far}
            self._start(self._pass_requests, near, far, asked)
            self._start(self._pass_answers, far, near, asked)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _pass_requests(
        self, near: socket.socket, far: socket.socket, asked: dict[int, RequestHeader]
    ) -> None:
        with self._closing(near, far):
            for frame in _frames(near):
                api_key, api_version, number = REQUEST_START.unpack_from(frame)
                header = RequestHeader(api_key, api_version, number, None)
                asked[header.correlation_id] = header
                far.sendall(SIZE.pack(len(frame)) + frame)

    def _pass_answers(
        self, far: socket.socket, near: socket.socket, asked: dict[int, RequestHeader]
    ) -> None:
        with self._closing(far, near):
            for frame in _frames(far):
                (correlation_id,) = SIZE.unpack_from(frame)
                near.sendall(self._changed(asked.pop(correlation_id), frame))

    @contextlib.contextmanager
    def _closing(self, source: socket.socket, sink: socket.socket) -> Iterator[None]:
        """Close `source` after the block and shut down `sink`, which ends its thread."""
        with contextlib.suppress(OSError):
            yield
        with self._changing:
            self._sockets.discard(source)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
            source.close()

    def _changed(self, header: RequestHeader, frame: bytes) -> bytes:
        """Return the response for the client, size prefix included."""
        unchanged = SIZE.pack(len(frame)) + frame
        if header.api_key not in RESPONSES:
            return unchanged
        response = RESPONSES[ApiKey(header.api_key)]
        message = response.decode(frame, version=header.api_version, header=True)
        # Decoded messages have a header that `encode` cannot handle.
        message._header = None
        if header.api_key == ApiKey.FETCH:
            return encode_message(header, message) if self._lose(message) else unchanged
        if header.api_key == ApiKey.METADATA:
            self._topics |= {each.topic_id: each.name for each in message.topics}
            self._move(message.brokers)
        else:
            self._move([message, *(message.coordinators or ())])
        return encode_message(header, message)

    def _move(self, brokers: list[Any]) -> None:
        for broker in brokers:
            if broker.port:
                broker.host, broker.port = "127.0.0.1", self.port

    def _lose(self, message: Any) -> bool:
        """Drop records from a Fetch response. Return whether any record was dropped."""
        is_changed = False
        for topic in message.responses:
            name = topic.topic or self._topics[topic.topic_id]
            for partition in topic.partitions:
                batches = [
                    self._lighter(name, partition.partition_index, header, bytes(batch))
                    for header, batch in iter_batches(partition.records or b"")
                ]
                if any(is_lighter for _, is_lighter in batches):
                    is_changed = True
                    partition.records = b"".join(batch for batch, _ in batches)
        return is_changed

    def _lighter(
        self, topic: str, partition: int, header: BatchHeader, batch: bytes
    ) -> tuple[bytes, bool]:
        """Return a batch without the dropped records, and whether any record was dropped."""
        offsets = range(header.base_offset, header.next_offset)
        unlucky = {each for each in offsets if self._loses(Place(topic, partition, each))}
        if not unlucky:
            return batch, False
        kept: list[bytes] = []
        for record, content in zip(decode_records(batch), _raw_records(header, batch), strict=True):
            if record.offset in unlucky:
                self.lost[Place(topic, partition, record.offset)] = record
            else:
                kept.append(content)
        return _sealed(header, kept), True


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """Yield received frames without their size prefixes until the peer closes."""
    with connection.makefile("rb") as stream:
        while size := stream.read(SIZE.size):
            (length,) = SIZE.unpack(size)
            frame = stream.read(length)
            if len(frame) < length:
                return
            yield frame


def _raw_records(header: BatchHeader, batch: bytes) -> Iterator[bytes]:
    """Yield the bytes of each record with its length prefix."""
    data = decompress(Codec(header.compression), batch[HEADER_BYTES:], RECORDS_BYTES_MAX)
    position = 0
    while position < len(data):
        length, start = read_varint(data, position)
        yield data[position : start + length]
        position = start + length


def _sealed(header: BatchHeader, records: list[bytes]) -> bytes:
    """Return an uncompressed batch of these records with the header's offsets."""
    body = b"".join(records)
    header = header._replace(
        batch_length=HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body),
        attributes=header.attributes & ~COMPRESSION_MASK,
        record_count=len(records),
    )
    crc = crc32c(body, crc32c(HEADER.pack(*header)[CRC_START:]))
    return HEADER.pack(*header._replace(crc=crc)) + body
