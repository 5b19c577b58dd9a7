"""Requests other than Produce and Fetch, on a separate connection and without a client library.

A stock client decides when it requests metadata, and from which broker. Here the caller does.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import DescribeGroupsRequest, DescribeGroupsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from benchmarks.produce_load import Address

METADATA_VERSION: Final = 12
DESCRIBE_GROUPS_VERSION: Final = 5
TIMEOUT_S: Final = 60.0
RECEIVE_BYTES: Final = 2**20

_CORRELATION_ID: Final = 7
_NO_ID: Final = UUID(int=0)
_NamedTopic = MetadataRequest.MetadataRequestTopic
_SIZE: Final = struct.Struct(">i")


class ColdConnection:
    """A connection to one broker, with one request at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def exchange(self, frame: bytes) -> memoryview:
        """Send a request; return the response without its size, valid until the next exchange."""
        self._sock.sendall(frame)
        self._receive(0, _SIZE.size)
        (size,) = _SIZE.unpack_from(self._buffer)
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size))
        self._receive(0, size)
        return self._buffer[:size]

    def get_metadata(self, topics: list[str] | None) -> Any:
        """Return the Metadata response for some topics, or for all."""
        answer = self.exchange(encode_metadata(topics))
        return MetadataResponse.decode(bytes(answer), version=METADATA_VERSION, header=True)

    def get_group_state(self, group_id: str) -> str:
        """Return the group's state, such as `Stable`; empty if the broker returns an error."""
        request = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False)
        answer = self.exchange(_encode(request, DESCRIBE_GROUPS_VERSION))
        response = DescribeGroupsResponse.decode(
            bytes(answer), version=DESCRIBE_GROUPS_VERSION, header=True
        )
        return str(response.groups[0].group_state)

    def _receive(self, start: int, end: int) -> None:
        while start < end:
            count = self._sock.recv_into(self._buffer[start:end])
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            start += count


@contextmanager
def cold_connection(address: Address) -> Iterator[ColdConnection]:
    """Open a connection to one broker until the end of the block."""
    with socket.create_connection(address, TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield ColdConnection(sock)


def encode_metadata(topics: list[str] | None) -> bytes:
    """Return the Metadata request for some topics, or for all; it creates none."""
    wanted = (
        None if topics is None else [_NamedTopic(topic_id=_NO_ID, name=name) for name in topics]
    )
    request = MetadataRequest(
        topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return _encode(request, METADATA_VERSION)


def _encode(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(_CORRELATION_ID, "bench")
    return bytes(request.encode(version=version, header=True, framed=True))
