"""The broker's codecs read the requests of the load generator, and it reads their responses."""

from pathlib import Path

from benchmarks.frames import ACKS_ALL, MESSAGE, FetchFrames, batch_of, encode_produce
from logbroker.records.file_span import FileSpan
from logbroker.records.record import decode_records
from logbroker.storage.segment_file import SegmentFile
from logbroker.wire.fetch import FetchOutcome, decode_fetch_request, encode_fetch_response
from logbroker.wire.produce import ProduceOutcome, decode_produce_request, encode_produce_response

TIME_MS = 1_795_000_000_000


def test_a_produce_request_carries_its_batch_to_its_partition() -> None:
    batch = batch_of(50, TIME_MS)
    sent = encode_produce("load", batch, 50, ACKS_ALL, partition=3)
    view = memoryview(sent.frame)
    request = decode_produce_request(view, 4, len(view))
    (found,) = request.batches
    assert (found.topic, found.partition, request.acks) == ("load", 3, ACKS_ALL)
    assert view[found.start : found.end] == batch
    assert [record.value for record in decode_records(batch)] == [MESSAGE] * 50


def test_a_response_has_the_announced_size_and_the_base_offset() -> None:
    sent = encode_produce("load", batch_of(1, TIME_MS), 1, ACKS_ALL)
    request = decode_produce_request(memoryview(sent.frame), 4, len(sent.frame))
    response = encode_produce_response(request, [ProduceOutcome(0, 41, -1, 0)])
    assert len(response) == sent.response_bytes
    assert sent.base_offset(response) == 41


def test_a_fetch_request_has_its_offset_and_finds_the_records_of_the_response(
    tmp_path: Path,
) -> None:
    frames = FetchFrames("load", 2, 65_536)
    frame = memoryview(frames.encode_request(1_000))
    request = decode_fetch_request(frame, 4, len(frame))
    (wanted,) = request.partitions
    assert (wanted.topic, wanted.partition, wanted.fetch_offset) == ("load", 2, 1_000)
    assert wanted.bytes_max == 65_536
    batch = batch_of(3, TIME_MS)
    segment = tmp_path / "segment"
    segment.write_bytes(batch)
    span = FileSpan(SegmentFile(segment), 0, len(batch))
    before, _, after = encode_fetch_response(request, [FetchOutcome(wanted, 0, 5, 0, span)])
    assert isinstance(before, bytes)
    assert isinstance(after, bytes)
    response = memoryview(before + batch + after)
    found = frames.find_records(response)
    assert response[found.records_at : found.records_at + found.records_bytes] == batch
    assert found.first_offset(response) == 0
