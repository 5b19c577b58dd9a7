"""The Kafka protocol over a bare socket, encoded by kafka-python."""

import select
import socket
import struct
from typing import Any, Self

from kafka.protocol.consumer.fetch import FetchRequest, FetchResponse
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from logbroker.records.record import NewRecord, Record, decode_records, encode_batch
from tests.support.processes.waiting import DEADLINE_S

PRODUCE_VERSION = 9
FETCH_VERSION = 12

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1


class RawConnection:
    """One connection for pipelined, truncated or invalid requests."""

    def __init__(self, bootstrap_servers: str, *, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        host = host.strip("[]")
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.socket.settimeout(DEADLINE_S)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def encode(self, request: Any, version: int) -> bytes:
        """Return a complete frame with the next correlation id."""
        self._correlation_id += 1
        request.API_VERSION = version
        request.with_header(self._correlation_id, "raw")
        return bytes(request.encode(version=version, header=True, framed=True))

    def send(self, request: Any, version: int) -> int:
        """Send without waiting, and return the correlation id."""
        self.socket.sendall(self.encode(request, version))
        return self._correlation_id

    def receive(self, response: Any, version: int) -> tuple[int, Any]:
        """Return the next response, decoded as `response`, with its correlation id."""
        frame = self.receive_frame()
        message = response.decode(frame, version=version, header=True)
        return message.header.correlation_id, message

    def ask(self, request: Any, response: Any, version: int) -> Any:
        """Send a request and return its response."""
        sent = self.send(request, version)
        correlation_id, message = self.receive(response, version)
        assert correlation_id == sent
        return message

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._receive_exactly(4))
        return self._receive_exactly(size)

    def is_readable(self) -> bool:
        """Report whether unread bytes have arrived or the connection is closed."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def until_closed(self) -> None:
        """Wait until the broker closes this connection, and assert that it sends nothing more."""
        try:
            assert self.socket.recv(1) == b""
        except ConnectionResetError:
            return

    def produce(
        self,
        topic: str,
        batch: bytes,
        *,
        acks: int,
        partition: int = 0,
        version: int = PRODUCE_VERSION,
    ) -> int:
        """Send one batch without waiting, and return the correlation id."""
        return self.send(produce_request(topic, batch, acks=acks, partition=partition), version)

    def produced(self, *, version: int = PRODUCE_VERSION) -> tuple[int, int, int]:
        """Return the next Produce response: correlation id, error code and base offset."""
        correlation_id, answer = self.receive(ProduceResponse, version)
        ((partition,),) = [topic.partition_responses for topic in answer.responses]
        return correlation_id, partition.error_code, partition.base_offset

    def fetch(
        self, topic: str, offset: int, *, min_bytes: int = 1, max_wait_ms: int = 0, **limits: int
    ) -> int:
        """Send a Fetch request without waiting, and return the correlation id."""
        request = fetch_request(
            topic, offset, min_bytes=min_bytes, max_wait_ms=max_wait_ms, **limits
        )
        return self.send(request, FETCH_VERSION)

    def fetched(self) -> "Fetched":
        """Return the next Fetch response."""
        _, answer = self.receive(FetchResponse, FETCH_VERSION)
        ((partition,),) = [topic.partitions for topic in answer.responses]
        return Fetched(partition.error_code, partition.high_watermark, partition.records)

    def _receive_exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            data = self.socket.recv(min(size - len(received), 2**20))
            if not data:
                raise ConnectionResetError(f"closed after {len(received)} of {size} bytes")
            received += data
        return bytes(received)


class Fetched:
    """One partition of a Fetch response."""

    def __init__(self, error_code: int, high_watermark: int, records: bytes | None) -> None:
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.data = bytes(records or b"")

    @property
    def records(self) -> list[Record]:
        found: list[Record] = []
        start = 0
        while start + 12 <= len(self.data):
            end = start + 12 + int.from_bytes(self.data[start + 8 : start + 12], "big")
            if end > len(self.data):
                break
            found += decode_records(self.data[start:end])
            start = end
        return found


def batch_of(*values: bytes, timestamp_ms: int = 1_700_000_000_000, **fields: Any) -> bytes:
    """Return one batch with these values."""
    return encode_batch([NewRecord(timestamp_ms, None, value) for value in values], **fields)


def produce_request(
    topic: str, batch: bytes, *, acks: int, timeout_ms: int = 30_000, partition: int = 0
) -> Any:
    into = ProduceRequest.TopicProduceData.PartitionProduceData(index=partition, records=batch)
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[into])
    return ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=[data]
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    min_bytes: int,
    max_wait_ms: int,
    max_bytes: int = 50 * 2**20,
    partition_bytes_max: int = 50 * 2**20,
    partition: int = 0,
) -> Any:
    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=partition_bytes_max,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
    )
