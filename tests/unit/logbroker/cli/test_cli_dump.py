import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from logbroker.cli.dump import dump
from logbroker.records.batch import read_header, stamp_append_time
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, encode_batch
from logbroker.storage.domain.compaction import CompactionRules, KeyOffsets, compact_batch

BASE = 1000
NOW_MS = 1_700_000_000_000


class Segment:
    """A segment of Kafka's format made by hand: ten batches of two records."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{BASE:020d}.log"
        self.index = self.path.with_suffix(".index")
        self.timeindex = self.path.with_suffix(".timeindex")
        self.positions: list[int] = []
        content = b""
        for number in range(10):
            self.positions.append(len(content))
            content += two_records(number)
        self.path.write_bytes(content)
        self.write_index([(3, 1), (9, 4), (19, 9)])
        self.write_timeindex([(3, 1), (19, 9)])

    def write_index(self, entries: list[tuple[int, int]]) -> None:
        """Entries of (relative last offset, number of the batch)."""
        packed = [struct.pack(">ii", last, self.positions[batch]) for last, batch in entries]
        self.index.write_bytes(b"".join(packed))

    def write_timeindex(self, entries: list[tuple[int, int]]) -> None:
        """Entries of (relative last offset, number of the batch with the timestamp)."""
        packed = [struct.pack(">qi", newest_ms(batch), last) for last, batch in entries]
        self.timeindex.write_bytes(b"".join(packed))

    def patch(self, position: int, octets: bytes) -> None:
        content = bytearray(self.path.read_bytes())
        content[position : position + len(octets)] = octets
        self.path.write_bytes(content)


def newest_ms(number: int) -> int:
    return NOW_MS + 10 * number + 1


def two_records(number: int) -> bytes:
    times = (NOW_MS + 10 * number, newest_ms(number))
    records = [NewRecord(time, b"key", b"value %d" % number, (("h", None),)) for time in times]
    return encode_batch(records, codec=Codec(number % 5), base_offset=BASE + 2 * number)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(dump, [str(argument) for argument in arguments])


def test_a_sound_segment_ends_with_zero_and_says_so(segment: Segment) -> None:
    result = run(segment.path)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"segment {segment.path}"
    assert len([line for line in lines if line.startswith("offsets=")]) == 10
    assert lines[-3:] == [
        "00000000000000001000.index entries=3 agrees",
        "00000000000000001000.timeindex entries=2 agrees",
        "batches=10 records=20 next_offset=1020 problems=0",
    ]
    assert result.stderr == ""


def test_a_batch_is_printed_in_one_line(tmp_path: Path) -> None:
    batch = encode_batch(
        [NewRecord(NOW_MS, b"k", b"v"), NewRecord(NOW_MS + 1500, b"k", b"v")],
        codec=Codec.SNAPPY,
        base_offset=7,
        producer_id=4711,
        producer_epoch=2,
        base_sequence=30,
        leader_epoch=5,
    )
    path = tmp_path / f"{7:020d}.log"
    path.write_bytes(batch)
    crc = batch[17:21].hex()
    assert run(path).stdout.splitlines()[3] == (
        f"offsets=7..8 position=0 size={len(batch)} count=2 codec=snappy "
        "timestamps=2023-11-14T22:13:20.000Z..2023-11-14T22:13:21.500Z time=CreateTime "
        f"leader_epoch=5 producer=4711/2/30 control=no crc={crc}:right"
    )


def test_the_delete_horizon_of_a_compacted_batch_is_printed(tmp_path: Path) -> None:
    records = [NewRecord(NOW_MS, b"gone", None), NewRecord(NOW_MS + 5, b"kept", b"value")]
    batch = encode_batch(records)
    header = read_header(batch)
    rules = CompactionRules(KeyOffsets(1024, b""), NOW_MS, 1_000)
    rules.keys.add_batch(header, batch)
    compacted = compact_batch(header, batch, rules, keeps_header=False)
    assert compacted is not None
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(compacted)
    result = CliRunner().invoke(dump, [str(path), "--records"])
    assert "timestamps=unknown..2023-11-14T22:13:20.005Z" in result.output
    assert "delete_horizon=2023-11-14T22:13:21.000Z" in result.output
    assert 'timestamp=2023-11-14T22:13:20.000Z key="gone" value=null' in result.output
    assert result.exit_code == 0


def test_append_times_and_out_of_range_times_are_printed(tmp_path: Path) -> None:
    stamped = bytearray(encode_batch([NewRecord(-1, None, None)]))
    stamp_append_time(stamped, NOW_MS)
    far = encode_batch([NewRecord(2**60, None, None)], base_offset=1)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(stamped + far)
    out = run(path).stdout
    assert "timestamps=none..2023-11-14T22:13:20.000Z time=LogAppendTime" in out
    assert f"timestamps={2**60}..{2**60}" in out


def test_records_are_printed_with_texts_bytes_and_nulls(tmp_path: Path) -> None:
    records = [
        NewRecord(NOW_MS, 'größe "1"'.encode(), b"\xff\x00", (("event-id", b"e1"), ("x", None))),
        NewRecord(NOW_MS, None, b""),
    ]
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode_batch(records, codec=Codec.ZSTD))
    lines = run(path, "--records").stdout.splitlines()
    assert lines[4] == (
        '  offset=0 timestamp=2023-11-14T22:13:20.000Z key="größe \\"1\\"" value=0xff00 '
        'headers={"event-id":"e1","x":null}'
    )
    assert lines[5] == (
        '  offset=1 timestamp=2023-11-14T22:13:20.000Z key=null value="" headers={}'
    )


def test_an_empty_segment_is_right(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    for suffix in (".log", ".index", ".timeindex"):
        path.with_suffix(suffix).touch()
    result = run(path)
    assert result.exit_code == 0
    assert "batches=0 records=0 next_offset=0 problems=0" in result.stdout


def test_a_wrong_crc_is_reported_and_the_dump_continues(segment: Segment) -> None:
    segment.patch(segment.positions[4] + 70, b"\x00\x01\x02")
    result = run(segment.path, "--records")
    assert result.exit_code == 1
    assert result.stdout.count(":wrong") == 1
    assert f"wrong: batch at position {segment.positions[4]} does not match" in result.stdout
    assert "batches=10 records=20 next_offset=1020 problems=1" in result.stdout


def test_a_segment_cut_at_any_byte_of_its_last_batch_is_wrong(segment: Segment) -> None:
    content = segment.path.read_bytes()
    segment.write_index([])
    segment.write_timeindex([])
    for end in range(segment.positions[9] + 1, len(content)):
        segment.path.write_bytes(content[:end])
        result = run(segment.path)
        assert result.exit_code == 1
        assert "wrong: the segment ends inside a " in result.stdout
        assert "batches=9 records=18 next_offset=1018 problems=1" in result.stdout


@pytest.mark.parametrize(
    ("at", "octets", "problem"),
    [
        (16, b"\x01", "magic 1"),
        (8, struct.pack(">i", 48), "length 48"),
        (8, struct.pack(">i", -1), "length -1"),
        (8, struct.pack(">i", 2**30), "ends inside a batch"),
    ],
)
def test_bytes_that_are_no_batch_end_the_walk(
    segment: Segment, at: int, octets: bytes, problem: str
) -> None:
    segment.patch(segment.positions[5] + at, octets)
    result = run(segment.path)
    assert result.exit_code == 1
    assert problem in result.stdout
    assert "batches=5 records=10" in result.stdout


def test_offsets_that_fall_back_are_wrong(segment: Segment) -> None:
    segment.path.write_bytes(two_records(1) + two_records(0))
    segment.write_index([])
    segment.write_timeindex([])
    result = run(segment.path)
    assert result.exit_code == 1
    assert "has offsets 1000..1001; expected is 1004 or more" in result.stdout


def test_records_that_do_not_parse_under_a_true_crc_are_wrong(segment: Segment) -> None:
    batch = bytearray(two_records(0))
    batch[57:61] = struct.pack(">i", 1)
    stamp_append_time(batch, newest_ms(0))
    segment.path.write_bytes(batch)
    segment.write_index([])
    segment.write_timeindex([])
    assert run(segment.path).exit_code == 0
    result = run(segment.path, "--records")
    assert result.exit_code == 1
    assert "wrong: records at position 0: batch at 1000:" in result.stdout


def test_a_missing_index_is_reported_but_is_no_problem(segment: Segment) -> None:
    segment.index.unlink()
    segment.timeindex.unlink()
    result = run(segment.path)
    assert result.exit_code == 0
    assert f"{segment.index.name} is not beside the segment" in result.stdout
    assert f"{segment.timeindex.name} is not beside the segment" in result.stdout


def test_zeros_that_fill_a_preallocated_index_are_no_entries(segment: Segment) -> None:
    segment.index.write_bytes(segment.index.read_bytes() + bytes(8 * 100))
    segment.timeindex.write_bytes(segment.timeindex.read_bytes() + bytes(12 * 100))
    result = run(segment.path)
    assert result.exit_code == 0
    assert "index entries=3 agrees" in result.stdout


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([(4, 1)], "wrong=1: entry 0 has offset 1004; the batch at"),
        ([(3, 1), (3, 1), (8, 4)], "wrong=1: entry 2 has offset 1008"),
        ([(9, 4), (3, 1), (19, 9)], "wrong=1: entry 1 names position"),
    ],
)
def test_an_offset_index_that_lies_is_wrong(
    segment: Segment, entries: list[tuple[int, int]], verdict: str
) -> None:
    segment.write_index(entries)
    result = run(segment.path)
    assert result.exit_code == 1
    assert f"{segment.index.name} entries={len(entries)} {verdict}" in result.stdout
    assert "problems=1" in result.stdout


def test_an_offset_entry_inside_a_batch_or_behind_all_is_wrong(segment: Segment) -> None:
    size = segment.path.stat().st_size
    segment.index.write_bytes(struct.pack(">iiii", 3, segment.positions[1] + 1, 21, size))
    result = run(segment.path)
    assert "wrong=2: entry 0 names position" in result.stdout
    assert "problems=2" in result.stdout
    segment.write_index([(19, 9)])
    segment.path.write_bytes(segment.path.read_bytes()[: segment.positions[5]])
    assert "wrong=1: entry 0 is about no batch" in run(segment.path).stdout


@pytest.mark.parametrize(
    ("entries", "verdict"),
    [
        ([(3, 2)], f"entry 0 has time {newest_ms(2)}; the batch at"),
        ([(2, 1)], "entry 0 has offset 1002, at which no batch ends"),
        ([(25, 9)], "entry 0 is about no batch"),
    ],
)
def test_a_time_index_that_lies_is_wrong(
    segment: Segment, entries: list[tuple[int, int]], verdict: str
) -> None:
    segment.write_timeindex(entries)
    result = run(segment.path)
    assert result.exit_code == 1
    assert f"{segment.timeindex.name} entries=1 wrong=1: {verdict}" in result.stdout


def test_a_time_entry_that_is_no_new_maximum_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    first = encode_batch([NewRecord(50, None, None)])
    second = encode_batch([NewRecord(40, None, None)], base_offset=1)
    path.write_bytes(first + second)
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 40, 1))
    result = run(path)
    assert result.exit_code == 1
    assert "entry 0 has time 40, which a batch before" in result.stdout


def test_an_index_cut_inside_an_entry_is_wrong(segment: Segment) -> None:
    segment.index.write_bytes(segment.index.read_bytes()[:-1])
    segment.timeindex.write_bytes(segment.timeindex.read_bytes() + b"\0")
    result = run(segment.path)
    assert result.exit_code == 1
    assert "index entries=2 wrong=1: the file ends inside an entry of 8 bytes" in result.stdout
    assert "timeindex entries=2 wrong=1: the file ends inside an entry of 12" in result.stdout


def test_one_wrong_segment_of_two_ends_with_one(segment: Segment, tmp_path: Path) -> None:
    wrong = tmp_path / f"{BASE + 20:020d}.log"
    wrong.write_bytes(b"\0" * 100)
    for paths in ((segment.path, wrong), (wrong, segment.path)):
        result = run(*paths)
        assert result.exit_code == 1
        assert result.stdout.count("segment ") >= 2
        assert "problems=0" in result.stdout


@pytest.mark.parametrize("name", ["missing/00000000000000000000.log", "1.log", "x.index", ""])
def test_misuse_ends_with_two_and_prints_no_data(tmp_path: Path, name: str) -> None:
    if name and "/" not in name:
        (tmp_path / name).touch()
    result = run(*([tmp_path / name] if name else []))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr
