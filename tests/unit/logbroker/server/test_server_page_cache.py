"""Whether the page cache is asked truly, on real files."""

import os
from pathlib import Path

import pytest

from logbroker.server.page_cache import PROBE_STEP_BYTES, is_warm, warm
from logbroker.storage.segment_file import SegmentFile
from logbroker.storage.span import FileSpan

SIZE = 8 * PROBE_STEP_BYTES


@pytest.fixture
def span(tmp_path: Path) -> FileSpan:
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return FileSpan(SegmentFile(path), 0, SIZE)


def drop_from_cache(span: FileSpan) -> None:
    os.posix_fadvise(span.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_warm(FileSpan(span.file, SIZE // 2, 1)):
        pytest.skip("this file system keeps its pages, or cannot tell")


def test_what_was_just_written_is_warm(span: FileSpan) -> None:
    assert is_warm(span)


def test_what_was_dropped_is_cold_until_it_is_read(span: FileSpan) -> None:
    drop_from_cache(span)

    assert not is_warm(span)
    warm(span)
    assert is_warm(span)


def test_asking_does_not_read(span: FileSpan) -> None:
    drop_from_cache(span)

    assert not is_warm(span)
    assert not is_warm(span)


def test_one_cold_end_makes_a_span_cold(span: FileSpan) -> None:
    drop_from_cache(span)
    warm(FileSpan(span.file, 0, PROBE_STEP_BYTES))

    assert is_warm(FileSpan(span.file, 0, PROBE_STEP_BYTES // 2))
    assert not is_warm(span)
