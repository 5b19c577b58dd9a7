"""Files that are gone by name and leave the disk later, off the loop's thread."""

import logging
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from logbroker.server.loop import SocketLoop
from logbroker.server.workers import Workers
from logbroker.storage.segment import LOG_SUFFIX

log = logging.getLogger("logbroker.file_removal")


class FileRemoval:
    """Removes renamed files and folders once readers have had time to finish with them."""

    def __init__(self, loop: SocketLoop, disk: Workers, delay_s: float) -> None:
        self._loop = loop
        self._disk = disk
        self._delay_s = delay_s

    def remove_later(self, paths: Iterable[Path]) -> None:
        """Unlink renamed files and folders after `file_delete_delay_s`."""
        doomed = list(paths)
        if not doomed:
            return
        due_s = self._loop.now_s + self._delay_s
        self._loop.call_at(due_s, lambda: self._disk.run(lambda: _remove(doomed), _report))


def _remove(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            for segment in path.glob(f"*{LOG_SUFFIX}*"):
                _give_back(segment)
            shutil.rmtree(path, ignore_errors=True)
        else:
            _give_back(path)
            path.unlink(missing_ok=True)


def _give_back(path: Path) -> None:
    """Give a segment's blocks back here, off the loop's thread.

    Whoever still has it open would else pay for that with its last close: a third of a second
    for some hundred megabytes. A reader that is so slow finds its connection closed.
    """
    if LOG_SUFFIX in path.suffixes and path.exists():
        os.truncate(path, 0)


def _report(result: Exception | None) -> None:
    if result is not None:
        log.error("a deleted log's files stay on disk: %s", result)
