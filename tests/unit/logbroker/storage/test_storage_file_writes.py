import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from logbroker.storage.file_writes import IOV_MAX, WRITE_BYTES_MAX, write_all


@pytest.fixture
def vectors(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[bytes]]:
    """The buffers of each call of `pwritev`."""
    found: list[Sequence[bytes]] = []
    write = os.pwritev

    def record(descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        found.append(buffers)
        return write(descriptor, buffers, position)

    monkeypatch.setattr(os, "pwritev", record)
    return found


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        pytest.param([WRITE_BYTES_MAX // 2] * 2, 1, id="as much as one call takes"),
        pytest.param([WRITE_BYTES_MAX // 2 + 1] * 3, 3, id="two are too many bytes"),
        pytest.param([1, WRITE_BYTES_MAX * 2, 1], 3, id="one is too long"),
        pytest.param([1_024] * (IOV_MAX + 1), 2, id="too many buffers"),
        pytest.param([2_000] * (IOV_MAX + 1), 2, id="too many bytes in many buffers"),
    ],
)
def test_long_writes_are_split_between_buffers(
    tmp_path: Path, vectors: list[Sequence[bytes]], sizes: list[int], calls: int
) -> None:
    buffers = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    file = tmp_path / "file"
    with file.open("wb") as opened:
        write_all(opened.fileno(), buffers, 3, sum(sizes))
    assert file.read_bytes() == bytes(3) + b"".join(buffers)
    assert len(vectors) == calls
    assert all(
        len(each) == 1 or (len(each) <= IOV_MAX and sum(map(len, each)) <= WRITE_BYTES_MAX)
        for each in vectors
    )
