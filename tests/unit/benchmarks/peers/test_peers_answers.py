"""Answers of brokers are counted the same however the bytes are cut, and errors are reported."""

import struct
from collections.abc import Callable

import pytest

from benchmarks.frames import ACKS_LEADER, MESSAGE, FetchFrames, batch_of, encode_produce
from benchmarks.peers import amqp, rabbitmq_stream
from benchmarks.peers.amqp import Confirms, Deliveries
from benchmarks.peers.exchange import Answers, ErrorAnswer, MessageCounter
from benchmarks.peers.kafka_protocol import FetchResponses, ProduceResponses
from benchmarks.peers.nats_jetstream import PublishAnswers, PulledMessages
from benchmarks.peers.rabbitmq_stream import Chunks, PublishConfirms
from benchmarks.peers.redis_streams import Entries, EntryIds

TIME_MS = 1_795_000_000_000
NATS_ACKS = b"".join(
    b'MSG _INBOX.bench 1 26\r\n{"stream":"log", "seq":%d}\r\n' % number for number in range(1, 4)
)
REDIS_ID = b"1795000000000-%d"


def whole_and_cut(create: Callable[[], Answers], data: bytes) -> tuple[int, bytes]:
    """Messages and replies of `data`, which must not depend on where it is cut."""
    expected = create().receive(data)
    for cut in range(1, len(data)):
        answers = create()
        first, second = answers.receive(data[:cut]), answers.receive(data[cut:])
        assert first.messages + second.messages == expected.messages, cut
        assert first.reply + second.reply == expected.reply, cut
    return expected


def produce_response(code: int, size: int, topic: str) -> bytes:
    head = struct.pack(">iib", size - 4, 7, 0) + b"\2" + bytes([len(topic) + 1]) + topic.encode()
    body = head + b"\2" + struct.pack(">i", 0) + struct.pack(">hq", code, 0)
    return body.ljust(size, b"\0")


def test_messages_are_counted_wherever_their_bytes_are_cut() -> None:
    data = b"head" + MESSAGE + b"\r\nmiddle" + MESSAGE
    for cut in range(len(data)):
        counter = MessageCounter()
        assert counter.count(data[:cut]) + counter.count(data[cut:]) == 2, cut
    counter = MessageCounter()
    assert sum(counter.count(data[at : at + 1]) for at in range(len(data))) == 2


def test_produce_responses_count_the_messages_of_their_batches() -> None:
    request = encode_produce("log", batch_of(50, TIME_MS), 50, ACKS_LEADER)
    response = produce_response(0, request.response_bytes, "log")
    assert whole_and_cut(lambda: ProduceResponses(request), response * 3) == (150, b"")


def test_a_rejected_batch_is_an_error() -> None:
    request = encode_produce("log", batch_of(1, TIME_MS), 1, ACKS_LEADER)
    response = produce_response(7, request.response_bytes, "log")
    with pytest.raises(ErrorAnswer, match="error 7"):
        ProduceResponses(request).receive(response)


def fetch_response(records: bytes) -> bytes:
    head = struct.pack(">ib", 7, 0) + struct.pack(">ihi", 0, 0, 0) + b"\2\4log"
    partition = b"\2" + struct.pack(">ihqqq", 0, 0, 9, 9, 0) + b"\1" + struct.pack(">i", -1)
    size = len(records) + 1
    content = head + partition + bytes([size & 0x7F | 0x80, size >> 7]) + records + b"\0\0\0"
    return struct.pack(">i", len(content)) + content


def test_fetch_responses_request_the_offset_after_their_batches() -> None:
    batch = batch_of(2, TIME_MS)
    frames = FetchFrames("log", 0, 1_000)

    def answers(messages: int) -> FetchResponses:
        return FetchResponses(frames, len(batch), 2, messages)

    response = fetch_response(batch + batch[:100])
    assert whole_and_cut(lambda: answers(9), response) == (2, frames.encode_request(2))
    assert answers(2).receive(response) == (2, b""), "no request after the last message"
    reader = answers(9)
    reader.receive(response)
    with pytest.raises(ErrorAnswer, match="requested 2, got 0"):
        reader.receive(response)


def test_redis_answers_are_counted_by_their_ids() -> None:
    ids = b"".join(b"$15\r\n%s\r\n" % (REDIS_ID % number) for number in range(3))
    assert whole_and_cut(EntryIds, ids) == (3, b"")
    with pytest.raises(ErrorAnswer, match="-OOM command not allowed"):
        EntryIds().receive(ids + b"-OOM command not allowed\r\n")


def test_redis_entries_are_requested_after_the_last_id() -> None:
    entries = b"".join(
        b"*2\r\n$15\r\n%s\r\n*2\r\n$1\r\nm\r\n$200\r\n%s\r\n" % (REDIS_ID % number, MESSAGE)
        for number in range(2)
    )
    answer = b"*1\r\n*2\r\n$3\r\nlog\r\n*1000\r\n" + entries

    def reader() -> Entries:
        """A reader that waits for the last two messages of an answer."""
        reading = Entries("log", 1_500)
        reading.receive(MESSAGE * 998)
        return reading

    request = (
        b"*6\r\n$5\r\nXREAD\r\n$5\r\nCOUNT\r\n$4\r\n1000\r\n$7\r\nSTREAMS\r\n$3\r\nlog\r\n"
        b"$15\r\n1795000000000-1\r\n"
    )
    assert whole_and_cut(reader, answer) == (2, request)


def test_redis_entries_end_without_a_request() -> None:
    assert Entries("log", 2).receive(MESSAGE + MESSAGE + b"\r\n") == (2, b"")


def test_nats_acknowledgements_are_counted_and_pings_answered() -> None:
    assert whole_and_cut(PublishAnswers, NATS_ACKS) == (3, b"")
    assert whole_and_cut(PublishAnswers, b"PING\r\n" + NATS_ACKS) == (3, b"PONG\r\n")
    with pytest.raises(ErrorAnswer, match="maximum messages"):
        PublishAnswers().receive(b'MSG _INBOX.bench 1 9\r\n{"error":"maximum messages"}\r\n')


def test_nats_messages_are_requested_for_every_thousand_received() -> None:
    pulled = PulledMessages(b"NEXT\r\n")
    assert pulled.receive(MESSAGE * 999) == (999, b"")
    assert pulled.receive(MESSAGE) == (1, b"NEXT\r\n")
    assert pulled.receive(MESSAGE * 2_000 + b"PING\r\n") == (2_000, b"NEXT\r\nNEXT\r\nPONG\r\n")


def acknowledgement(tag: int, *, is_multiple: bool, method: int = 80) -> bytes:
    arguments = struct.pack(">HHQB", 60, method, tag, is_multiple)
    return amqp.frame(1, amqp.CHANNEL, arguments)


def test_amqp_confirmations_count_each_message_once() -> None:
    data = (
        acknowledgement(2, is_multiple=False)
        + acknowledgement(1, is_multiple=False)
        + acknowledgement(9, is_multiple=False)
        + acknowledgement(5, is_multiple=True)
        + acknowledgement(5, is_multiple=True)
        + acknowledgement(9, is_multiple=True)
    )
    assert whole_and_cut(Confirms, data) == (9, b"")
    assert Confirms().receive(data[: 21 * 4]).messages == 6
    with pytest.raises(ErrorAnswer, match="method 120"):
        Confirms().receive(acknowledgement(1, is_multiple=False, method=120))


def test_a_persistent_message_is_published_as_method_header_and_body() -> None:
    data = amqp.publish("log", MESSAGE)
    method = bytes.fromhex("003c0028 0000 00 03") + b"log\0"
    header = bytes.fromhex("003c 0000 00000000000000c8 1000 02")
    assert data == amqp.frame(1, 1, method) + amqp.frame(2, 1, header) + amqp.frame(3, 1, MESSAGE)
    assert whole_and_cut(Deliveries, data) == (1, b"")


def test_stream_confirmations_are_counted_by_their_ids() -> None:
    data = b"".join(
        rabbitmq_stream.command(3, struct.pack(">BI", 0, count) + bytes(8 * count))
        for count in (1, 50)
    )
    assert whole_and_cut(PublishConfirms, data) == (51, b"")
    with pytest.raises(ErrorAnswer, match="no confirmation"):
        PublishConfirms().receive(rabbitmq_stream.command(4, bytes(11)))


def test_each_chunk_of_a_stream_is_worth_one_credit() -> None:
    chunk = rabbitmq_stream.command(8, b"\0" + bytes(48) + MESSAGE * 2)
    credit = rabbitmq_stream.command(9, b"\0\0\1")
    assert whole_and_cut(Chunks, chunk) == (2, credit)
    refused = rabbitmq_stream.command(0x8007, struct.pack(">IH", 1, 2))
    with pytest.raises(ErrorAnswer, match="response code 2"):
        Chunks().receive(refused)


def test_a_stream_publishes_batches_in_one_command() -> None:
    data = rabbitmq_stream.publish(50)
    assert int.from_bytes(data[:4]) == len(data) - 4
    assert data[4:13] == bytes.fromhex("0002 0001 00 00000032")
    assert data.count(MESSAGE) == 50
