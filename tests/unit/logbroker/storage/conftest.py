from pathlib import Path
from typing import Any

import pytest

from logbroker.config import UNSET, LogConfig
from logbroker.storage.partition_log import PartitionLog
from logbroker.storage.recovery import KnownOffsets, create_folder, load_folder
from tests.unit.logbroker.storage.storage_content import TOPIC_ID, OpenLog

NOW_MS = 1_700_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "events-0"


@pytest.fixture
def new_log(folder: Path) -> OpenLog:
    """A new log with the given topic settings, which accepts records of any time."""

    def open_new(**settings: Any) -> PartitionLog:
        config = LogConfig(**{"message_timestamp_after_max_ms": UNSET} | settings)
        return PartitionLog(folder, "events", 0, config, create_folder(folder, TOPIC_ID))

    return open_new


@pytest.fixture
def reopened(folder: Path) -> OpenLog:
    """The log that lies in the folder, recovered unless it is said to be clean."""

    def reopen(
        recovery_point: int = 0,
        *,
        log_start_offset: int = 0,
        is_clean: bool = False,
        now_ms: int = NOW_MS,
        **settings: Any,
    ) -> PartitionLog:
        known = KnownOffsets(recovery_point, log_start_offset)
        loaded = load_folder(folder, known, now_ms, is_clean=is_clean)
        assert not (is_clean and loaded.was_recovered)
        return PartitionLog(folder, "events", 0, LogConfig(**settings), loaded.log)

    return reopen
