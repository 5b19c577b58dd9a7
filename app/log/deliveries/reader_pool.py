"""Clients that read ranges of one topic, kept between requests.

A new one takes several milliseconds, and a connection to each broker.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from app.config import Settings
from app.log.browser.record_reader import RecordReader

KEPT_MAX: Final = 4
"""Idle clients of a topic."""


class ReaderPool:
    """Readers of one topic. Thread-safe."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._lock = threading.Lock()
        self._idle: list[RecordReader] = []
        self._is_closed = False

    def close(self) -> None:
        """Close idle readers, and others when they are returned."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    @contextmanager
    def reader(self) -> Iterator[RecordReader]:
        """A reader for one thread, until the block ends."""
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        if reader is None:
            reader = RecordReader(self._settings, self._topic)
        is_usable = False
        try:
            yield reader
            is_usable = not reader.problems
        finally:
            self._put_back(reader, is_usable=is_usable)

    def _put_back(self, reader: RecordReader, *, is_usable: bool) -> None:
        if is_usable:
            reader.reset()
            with self._lock:
                if not self._is_closed and len(self._idle) < KEPT_MAX:
                    self._idle.append(reader)
                    return
        reader.close()
