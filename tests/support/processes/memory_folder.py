"""Temporary folders of tests in memory: a flush to a disk costs more than most tests.

No test crashes the machine, so no file has to survive that. A test that is about a disk uses
`disk_path`. `pytest --basetemp` and the variable PYTEST_DEBUG_TEMPROOT name another place.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

MEMORY: Final = Path("/dev/shm")

FREE_BYTES_MIN: Final = 4 * 2**30
"""A container may have 64 MB here. The folders of a run use up to 1.5 GB."""

VARIABLE: Final = "PYTEST_DEBUG_TEMPROOT"


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    if VARIABLE not in os.environ and _is_suitable(MEMORY):
        os.environ[VARIABLE] = str(MEMORY)


def _is_suitable(folder: Path) -> bool:
    """Report whether a folder has room, and programs in it can be run."""
    if not os.access(folder, os.W_OK):
        return False
    is_executable = not os.statvfs(folder).f_flag & os.ST_NOEXEC
    return is_executable and shutil.disk_usage(folder).free >= FREE_BYTES_MIN


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """Yield a temporary folder on a disk, as far as this machine's folder for them is on one."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
