"""A history has each event of the window once, in one partition, at its time."""

import pytest

from benchmarks.delivery_history import BODY_BYTES, SHARE, History
from logbroker.client.partitioner import partition_for_key
from logbroker.records.batch import crc_matches, read_header
from logbroker.records.record import Record, decode_records

PARTITIONS = 16
WEBHOOK = "wh_0123456789abcdefghij"


def records_of(history: History) -> list[Record]:
    records = []
    for batch, count in history.batches():
        assert crc_matches(batch, read_header(batch).crc)
        decoded = decode_records(batch)
        assert len(decoded) == count
        records += decoded
    return records


@pytest.mark.parametrize(("share", "events"), [(1, 1_500), (SHARE, 1_000), (100, 20)])
def test_the_window_has_its_events_once_each_and_at_their_times(share: int, events: int) -> None:
    history = History.until_now(WEBHOOK, PARTITIONS, events * share + 2_000, events, share)
    window = history.window_of(events)
    deliveries = [
        record
        for record in records_of(history)
        if window.from_ms <= record.timestamp_ms < window.to_ms and record.key == WEBHOOK.encode()
    ]
    assert history.events == len(deliveries) == events
    assert len({dict(record.headers)["event-id"] for record in deliveries}) == events
    assert len({record.value for record in deliveries}) == events


def test_a_part_of_the_window_has_its_share() -> None:
    history = History.until_now(WEBHOOK, PARTITIONS, 8_000, 1_000)
    window = history.window_of(70)
    inside = [
        record
        for record in records_of(history)
        if window.from_ms <= record.timestamp_ms < window.to_ms
    ]
    assert len(inside) == 70 * SHARE
    assert sum(record.key == WEBHOOK.encode() for record in inside) == 70


def test_all_records_have_one_size_and_one_partition_and_are_in_order() -> None:
    history = History.until_now(WEBHOOK, PARTITIONS, 5_000, 1_000)
    records = records_of(history)
    assert len(records) == history.records == 5_000
    assert {len(record.value or b"") for record in records} == {BODY_BYTES}
    keys = {record.key or b"" for record in records}
    assert {partition_for_key(key, PARTITIONS) for key in keys} == {history.partition}
    times_ms = [record.timestamp_ms for record in records]
    assert times_ms == sorted(times_ms)
