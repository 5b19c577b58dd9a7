"""Connections that share a turn get only their own responses."""

import os
import signal
import struct

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from logbroker.records.record import NewRecord, encode_batch
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import ACKS_LEADER, RawConnection, produce_request

CUT_PRODUCE = struct.pack(">ihhi", 10, 0, 9, 1) + b"\0\0"
"""A frame that says it is a produce request, and ends where its body should begin."""


def batch(value: bytes) -> bytes:
    return encode_batch([NewRecord(1, None, value)])


def test_a_broken_client_does_not_affect_responses_of_others(
    broker: BrokerProcess,
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("isolation", 1)])["isolation"].result()
    with (
        RawConnection(broker.bootstrap_servers) as broken,
        RawConnection(broker.bootstrap_servers) as healthy,
    ):
        for connection in (broken, healthy):
            connection.produce("isolation", batch(b"first"), acks=ACKS_LEADER)
            connection.produced()
        request = produce_request("isolation", batch(b"second"), acks=ACKS_LEADER)
        # Frozen, the broker finds both connections ready in one turn.
        os.kill(broker.pid, signal.SIGSTOP)
        broken.socket.sendall(broken.encode(request, 9) + CUT_PRODUCE)
        sent = healthy.produce("isolation", batch(b"third"), acks=ACKS_LEADER)
        os.kill(broker.pid, signal.SIGCONT)

        correlation_id, error_code, base_offset = healthy.produced()
        assert (correlation_id, error_code) == (sent, 0)
        assert base_offset in (2, 3), "after both first batches, in either order"
        broken.until_closed()
