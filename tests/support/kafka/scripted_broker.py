"""A broker of one topic with scripted responses, encoded by kafka-python."""

import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

from logbroker.records.batch import read_header
from tests.support.kafka.raw_connection import batch_of

TOPIC: Final = "scripted"
API_VERSIONS, METADATA, LIST_OFFSETS, FETCH, SASL_HANDSHAKE = 18, 3, 2, 1, 17
UNSUPPORTED_SASL_MECHANISM: Final = 33
NONE: Final = 0

_REQUESTS: Final[dict[int, Any]] = {
    API_VERSIONS: ApiVersionsRequest,
    METADATA: MetadataRequest,
    LIST_OFFSETS: ListOffsetsRequest,
    FETCH: FetchRequest,
    SASL_HANDSHAKE: SaslHandshakeRequest,
}
_Partition: Final = FetchResponse.FetchableTopicResponse.PartitionData

Frame = bytes
Change = Callable[[Frame], bytes | None]
"""The bytes to send instead of a frame before closing. None sends nothing and stays open."""


class Asked(NamedTuple):
    """A received Fetch request of one partition."""

    version: int
    offset: int
    bytes_max: int
    isolation_level: int


class ScriptedBroker:
    """Partition 0 of `TOPIC` with a few batches. A context manager.

    The next Fetch answers take fields of the partition from `fetches`, besides `throttle_time_ms`,
    `answer_error_code`, and `is_empty` for one that lists no partition; the later ones say what
    is in the log. The next Metadata answers take the leader from `leaders`. `changes` has for each
    API what is done to its next answers.
    """

    def __init__(self, *batch_sizes: int, context: ssl.SSLContext | None = None) -> None:
        self.batches = _log(batch_sizes)
        self.end = sum(batch_sizes)
        self.versions = {
            API_VERSIONS: (0, 0),
            METADATA: (0, 12),
            LIST_OFFSETS: (1, 8),
            FETCH: (4, 17),
            SASL_HANDSHAKE: (0, 1),
        }
        self.topic_id = UUID(int=1)
        self.topic_error = NONE
        self.leaders: deque[int] = deque()
        self.fetches: deque[dict[str, Any]] = deque()
        self.offsets: deque[dict[str, Any]] = deque()
        self.changes: dict[int, deque[Change]] = {api_key: deque() for api_key in _REQUESTS}
        self.asked: list[Asked] = []
        self.connections = 0
        self._context = context
        self._over = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        # `close` does not wake the accepting thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def properties(self) -> dict[str, str]:
        """Return a client's properties for this broker, with short retry pauses."""
        return {"bootstrap.servers": f"127.0.0.1:{self.port}", "retry.backoff.ms": "1"}

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._sockets.append(connection)
            thread = Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            while self._answer(connection):
                pass
        connection.close()

    def _answer(self, connection: socket.socket) -> bool:
        """Answer one request; return whether the connection stays open."""
        (size,) = struct.unpack(">i", _receive(connection, 4))
        frame = _receive(connection, size)
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        request = _REQUESTS[api_key].decode(frame, version=version, header=True)
        message = self._message(api_key, version, request)
        message.with_header(correlation_id)
        answer = bytes(message.encode(header=True, framed=True))
        if not self.changes[api_key]:
            connection.sendall(answer)
            return True
        changed = self.changes[api_key].popleft()(answer)
        if changed is None:
            self._over.wait()
            return False
        connection.sendall(changed)
        return False

    def _message(self, api_key: int, version: int, request: Any) -> Any:
        if api_key == API_VERSIONS:
            return self._api_versions(version)
        if api_key == METADATA:
            return self._metadata(version)
        if api_key == SASL_HANDSHAKE:
            return SaslHandshakeResponse(
                version=version, error_code=UNSUPPORTED_SASL_MECHANISM, mechanisms=["GSSAPI"]
            )
        if api_key == LIST_OFFSETS:
            return self._list_offsets(version, request)
        return self._fetch(version, request)

    def _api_versions(self, version: int) -> Any:
        keys = [
            ApiVersionsResponse.ApiVersion(
                version=version, api_key=api_key, min_version=lowest, max_version=highest
            )
            for api_key, (lowest, highest) in self.versions.items()
        ]
        return ApiVersionsResponse(version=version, error_code=NONE, api_keys=keys)

    def _metadata(self, version: int) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        partition = topic.MetadataResponsePartition(
            version=version,
            error_code=NONE,
            partition_index=0,
            leader_id=self.leaders.popleft() if self.leaders else 1,
            leader_epoch=3,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        described = topic(
            version=version,
            error_code=self.topic_error,
            name=TOPIC,
            topic_id=self.topic_id,
            is_internal=False,
            partitions=[] if self.topic_error else [partition],
        )
        broker = MetadataResponse.MetadataResponseBroker(
            version=version, node_id=1, host="127.0.0.1", port=self.port, rack=None
        )
        return MetadataResponse(
            version=version,
            throttle_time_ms=0,
            brokers=[broker],
            cluster_id="scripted",
            controller_id=1,
            topics=[described],
        )

    def _list_offsets(self, version: int, request: Any) -> Any:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        wanted = request.topics[0].partitions[0].timestamp
        fields = {
            "error_code": NONE,
            "timestamp": -1,
            "offset": {-1: self.end, -2: 0}.get(wanted, -1),
            "leader_epoch": 3,
        } | (self.offsets.popleft() if self.offsets else {})
        partition = topic.ListOffsetsPartitionResponse(version=version, partition_index=0, **fields)
        answered = topic(version=version, name=TOPIC, partitions=[partition])
        return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=[answered])

    def _fetch(self, version: int, request: Any) -> Any:
        ((wanted,),) = [topic.partitions for topic in request.topics]
        self.asked.append(
            Asked(version, wanted.fetch_offset, wanted.partition_max_bytes, request.isolation_level)
        )
        fields = dict(self.fetches.popleft()) if self.fetches else {}
        throttle_ms = fields.pop("throttle_time_ms", 0)
        error_code = fields.pop("answer_error_code", NONE)
        is_empty = fields.pop("is_empty", False)
        topic = FetchResponse.FetchableTopicResponse
        partition = _Partition(version=version, **(self._fetched(wanted.fetch_offset) | fields))
        answered = topic(
            version=version, topic=TOPIC, topic_id=self.topic_id, partitions=[partition]
        )
        return FetchResponse(
            version=version,
            throttle_time_ms=throttle_ms,
            error_code=error_code,
            session_id=0,
            responses=[] if is_empty else [answered],
        )

    def _fetched(self, offset: int) -> dict[str, Any]:
        """Return one batch per response, so that there is always another."""
        found = [each for each in self.batches if read_header(each).next_offset > offset]
        return {
            "partition_index": 0,
            "error_code": NONE,
            "high_watermark": self.end,
            "last_stable_offset": self.end,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": found[0] if found else b"",
        }


def _log(batch_sizes: tuple[int, ...]) -> list[bytes]:
    batches = []
    start = 0
    for size in batch_sizes:
        values = (b"value %d" % number for number in range(start, start + size))
        batches.append(batch_of(*values, base_offset=start))
        start += size
    return batches


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        content = connection.recv(size - len(received))
        if not content:
            raise EOFError
        received += content
    return received
