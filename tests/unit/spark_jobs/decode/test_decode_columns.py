"""The Arrow columns of records."""

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.decode.columns import TYPES, timestamps

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(microsecond=999_000, tzinfo=UTC)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**14), 10**15)))
def test_timestamps_are_limited_to_the_years_of_spark(times_ms: list[int]) -> None:
    least, most = (FIRST - EPOCH) // MS, (LAST - EPOCH) // MS
    column = timestamps(np.array(times_ms, np.int64))
    assert column.type == TYPES["timestamp"]
    nearest = [EPOCH + min(max(time_ms, least), most) * MS for time_ms in times_ms]
    assert column.to_pylist() == nearest
