"""What the storage writes, dump finds right: two readers of one format."""

from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner

from logbroker.cli.dump import dump
from logbroker.config import LogConfig
from logbroker.records.compression import Codec
from logbroker.records.record import NewRecord, encode_batch
from logbroker.storage.log_directory import LogDirectory

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=40_000)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "active"])
def test_segments_of_a_real_log_and_their_indexes_are_right(
    tmp_path: Path, is_closed: bool
) -> None:
    directory = LogDirectory.claim(tmp_path)
    log = directory.create("t", 0, UUID(int=1), CONFIG)
    for number in range(300):
        # Every third batch is older than the one before it.
        timestamp_ms = NOW_MS + number - 5 * (number % 3)
        records = [NewRecord(timestamp_ms, b"key", bytes([number % 256]) * 200)] * 5
        batch = encode_batch(records, codec=Codec(number % 5))
        log.append(memoryview(bytearray(batch)), NOW_MS + number)
        log.write()
    log.advance_high_watermark(log.flush())
    if is_closed:
        directory.close()
    paths = sorted((tmp_path / "t-0").glob("*.log"))
    result = CliRunner().invoke(dump, [*map(str, paths), "--records"])
    if not is_closed:
        directory.close()
    assert result.exit_code == 0, result.stdout
    assert len(paths) > 2
    assert result.stdout.count(" agrees") == 2 * len(paths)
    assert result.stdout.count("  offset=") == 1500
    assert "next_offset=1500 problems=0" in result.stdout.splitlines()[-1]


def test_a_torn_end_of_a_real_log_is_found(tmp_path: Path) -> None:
    directory = LogDirectory.claim(tmp_path)
    log = directory.create("t", 0, UUID(int=1), CONFIG)
    for _ in range(2):
        batch = encode_batch([NewRecord(NOW_MS, b"key", b"value")])
        log.append(memoryview(bytearray(batch)), NOW_MS)
    log.write()
    directory.close()
    (path,) = (tmp_path / "t-0").glob("*.log")
    path.write_bytes(path.read_bytes()[:-1])
    result = CliRunner().invoke(dump, [str(path)])
    assert result.exit_code == 1
    assert "wrong: the segment ends inside a batch" in result.stdout
