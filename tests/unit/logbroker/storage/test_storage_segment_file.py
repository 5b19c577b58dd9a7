"""Spans of segment files: whether the page cache holds them, on real files."""

import os
from pathlib import Path

import pytest

from logbroker.records.file_span import FileSpan
from logbroker.storage.segment_file import PROBE_STEP_BYTES, SegmentFile, is_cached, load_into_cache

SIZE = 8 * PROBE_STEP_BYTES


@pytest.fixture
def span(disk_path: Path) -> FileSpan:
    path = disk_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return FileSpan(SegmentFile(path), 0, SIZE)


def drop_from_cache(span: FileSpan) -> None:
    os.posix_fadvise(span.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if is_cached(FileSpan(span.file, SIZE // 2, 1)):
        pytest.skip("this file system keeps its pages or does not support the check")


def test_written_pages_are_cached(span: FileSpan) -> None:
    assert is_cached(span)


def test_dropped_pages_are_not_cached_until_they_are_loaded(span: FileSpan) -> None:
    drop_from_cache(span)

    assert not is_cached(span)
    load_into_cache(span)
    assert is_cached(span)


def test_the_check_does_not_load_pages(span: FileSpan) -> None:
    drop_from_cache(span)

    assert not is_cached(span)
    assert not is_cached(span)


def test_a_span_with_an_uncached_end_is_not_cached(span: FileSpan) -> None:
    drop_from_cache(span)
    load_into_cache(FileSpan(span.file, 0, PROBE_STEP_BYTES))

    assert is_cached(FileSpan(span.file, 0, PROBE_STEP_BYTES // 2))
    assert not is_cached(span)
