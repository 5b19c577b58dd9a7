"""Batches captured from other software; `tests/golden/records/capture.py` made them."""

import json
from pathlib import Path

import pytest

from logbroker.records.batch import crc_matches, read_header
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, Record, decode_records, encode_batch

GOLDEN = Path(__file__).parents[3] / "golden" / "records"
BATCHES = sorted(GOLDEN.glob("*.batch"))


def octets(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def golden_records() -> list[NewRecord]:
    return [
        NewRecord(
            fields["timestamp_ms"],
            octets(fields["key"]),
            octets(fields["value"]),
            tuple((key, octets(value)) for key, value in fields["headers"]),
        )
        for fields in json.loads((GOLDEN / "records.json").read_text())
    ]


def test_three_libraries_wrote_with_five_codecs() -> None:
    assert len(BATCHES) == 15


@pytest.mark.parametrize("path", BATCHES, ids=lambda path: path.stem)
def test_a_captured_batch_is_read(path: Path) -> None:
    batch = path.read_bytes()
    header = read_header(batch)
    records = golden_records()
    assert crc_matches(batch, header.crc)
    assert Codec(header.compression).name.lower() == path.stem.rpartition("-")[2]
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert decode_records(batch) == [Record(i, *record) for i, record in enumerate(records)]


@pytest.mark.parametrize("writer", ["kafka-python", "aiokafka"])
def test_the_same_records_give_the_same_bytes(writer: str) -> None:
    captured = (GOLDEN / f"{writer}-none.batch").read_bytes()
    header = read_header(captured)
    ours = encode_batch(
        golden_records(),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
    )
    assert ours == captured
