"""Spans of segment files: whether the page cache holds them, on real files."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logbroker.records.file_span import FileSpan
from logbroker.storage.segment_file import (
    COPIED_BYTES_MAX,
    PROBE_STEP_BYTES,
    SMALL_SPAN_BYTES,
    SegmentFile,
    copy_small_spans,
    is_cached,
    load_into_cache,
)

SIZE = 8 * PROBE_STEP_BYTES

DROPS_MAX = 100
"""The kernel keeps pages that it writes or reads at that moment, and a check may begin to read."""


@pytest.fixture
def span(disk_path: Path) -> FileSpan:
    path = disk_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    file = SegmentFile(path)
    # Each check starts to read what it misses: one page, where it could be the whole file.
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    return FileSpan(file, 0, SIZE)


def drop_from_cache(span: FileSpan, then: Callable[[], object] = lambda: None) -> None:
    """Drop the span, then do something, until the span is not cached."""
    for _ in range(DROPS_MAX):
        os.posix_fadvise(span.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        then()
        if not is_cached(span):
            return
        time.sleep(0.01)
    pytest.skip("this file system keeps its pages or does not support the check")


def test_written_pages_are_cached(span: FileSpan) -> None:
    assert is_cached(span)


def test_dropped_pages_are_not_cached_until_they_are_loaded(span: FileSpan) -> None:
    drop_from_cache(span)
    load_into_cache(span)
    assert is_cached(span)


def test_a_span_with_an_uncached_end_is_not_cached(span: FileSpan) -> None:
    beginning = FileSpan(span.file, 0, PROBE_STEP_BYTES)
    drop_from_cache(span, lambda: load_into_cache(beginning))
    assert is_cached(FileSpan(span.file, 0, PROBE_STEP_BYTES // 2))


def test_small_cached_spans_become_bytes(span: FileSpan) -> None:
    contents = os.pread(span.file.fileno(), SIZE, 0)
    small = FileSpan(span.file, 1, SMALL_SPAN_BYTES)
    large = FileSpan(span.file, 0, SMALL_SPAN_BYTES + 1)
    copied = copy_small_spans([b"before", small, b"between", large, b"after"])
    assert copied == [b"before", contents[1 : 1 + SMALL_SPAN_BYTES], b"between", large, b"after"]


def test_the_copied_bytes_of_a_response_are_limited(span: FileSpan) -> None:
    count = COPIED_BYTES_MAX // SMALL_SPAN_BYTES
    small = FileSpan(span.file, 0, SMALL_SPAN_BYTES)
    copied = copy_small_spans([small] * (count + 2))
    assert [isinstance(each, bytes) for each in copied] == [True] * count + [False] * 2


def test_small_spans_that_are_not_cached_stay_spans(span: FileSpan) -> None:
    drop_from_cache(span)
    small = FileSpan(span.file, PROBE_STEP_BYTES, SMALL_SPAN_BYTES)
    assert copy_small_spans([b"before", small]) == [b"before", small]


def test_a_span_behind_the_end_of_the_file_stays_a_span(span: FileSpan) -> None:
    beyond = FileSpan(span.file, SIZE - 10, 20)
    assert copy_small_spans([beyond]) == [beyond]
