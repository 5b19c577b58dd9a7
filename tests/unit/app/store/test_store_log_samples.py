"""Stored samples of the log: one process a minute, two spans, and their deletion."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update

from app.domain.log_samples import (
    ALL_GROUPS,
    MINUTES_KEPT_MS,
    LogSample,
    SampleSpan,
    Series,
    SeriesKind,
)
from app.store import Store
from app.store.log_sample_tables import NAME_CHARS_MAX, log_sample_states, log_samples
from app.store.log_samples import LogSamples

MINUTE_MS = 60_000
TEN_MS = 10 * MINUTE_MS
START_MS = 3_000_000 * TEN_MS
TOPIC = Series(SeriesKind.TOPIC, "events")
GROUP = Series(SeriesKind.GROUP, "readers & more é")


@pytest.fixture
def samples(store: Store) -> LogSamples:
    return LogSamples(store.database, "here")


def add(samples: LogSamples, minute: int, series: Series, value: int, size: int | None) -> None:
    at_ms = START_MS + minute * MINUTE_MS
    samples.add(at_ms, {series: LogSample(at_ms, value, size)})


def set_claimed(store: Store, minute_ms: int) -> None:
    changed = update(log_sample_states).values(minute_ms=minute_ms)
    store.database.write(lambda connection: connection.execute(changed))


def test_a_minute_is_claimed_once(store: Store, samples: LogSamples) -> None:
    first_ms = samples.claim_minute()
    assert first_ms is not None
    assert first_ms % MINUTE_MS == 0
    set_claimed(store, first_ms - MINUTE_MS)
    with ThreadPoolExecutor(4) as threads:
        claims = [threads.submit(samples.claim_minute) for _ in range(4)]
    taken = [claim.result() for claim in claims if claim.result() is not None]
    # The next minute may have begun since.
    assert len(taken) == len(set(taken)) >= 1
    assert LogSamples(store.database, "elsewhere").claim_minute() is not None


def test_a_group_has_its_highest_lag_in_each_span(samples: LogSamples) -> None:
    for minute, lag in ((0, 5), (1, 70), (11, 2)):
        add(samples, minute, GROUP, lag, None)
    add(samples, 1, GROUP, 60, None)
    minutes = samples.list(GROUP, SampleSpan.MINUTE, START_MS + MINUTE_MS)
    assert minutes == (
        LogSample(START_MS + MINUTE_MS, 70),
        LogSample(START_MS + 11 * MINUTE_MS, 2),
    )
    tens = samples.list(GROUP, SampleSpan.TEN_MINUTES, START_MS)
    assert tens == (LogSample(START_MS, 70), LogSample(START_MS + TEN_MS, 2))
    assert samples.list(ALL_GROUPS, SampleSpan.MINUTE, 0) == ()


def test_a_topic_has_its_last_end_and_size(store: Store, samples: LogSamples) -> None:
    add(samples, 0, TOPIC, 100, 900)
    add(samples, 1, TOPIC, 2**40, 800)
    add(samples, 2, TOPIC, 2**40, None)
    (ten,) = samples.list(TOPIC, SampleSpan.TEN_MINUTES, 0)
    assert ten == LogSample(START_MS, 2**40, None)
    assert [each.bytes for each in samples.list(TOPIC, SampleSpan.MINUTE, 0)] == [900, 800, None]
    assert LogSamples(store.database, "elsewhere").list(TOPIC, SampleSpan.MINUTE, 0) == ()


def test_an_id_that_is_too_long_is_left_out(samples: LogSamples) -> None:
    long = [Series(SeriesKind.GROUP, "é" * length) for length in (NAME_CHARS_MAX, 256)]
    samples.add(START_MS, {each: LogSample(START_MS, 1) for each in long})
    assert [len(samples.list(each, SampleSpan.MINUTE, 0)) for each in long] == [1, 0]


def test_old_samples_are_deleted_by_span(store: Store, samples: LogSamples) -> None:
    for minute in range(0, 400, 5):
        add(samples, minute, TOPIC, minute, None)
        add(samples, minute, GROUP, minute, None)
    elsewhere = LogSamples(store.database, "elsewhere")
    add(elsewhere, 0, TOPIC, 1, None)
    present_ms = START_MS + 400 * MINUTE_MS
    kept_ms = 300 * MINUTE_MS
    calls = 1
    while samples.delete_expired(present_ms, kept_ms):
        calls += 1
    assert calls > 2
    minutes = samples.list(TOPIC, SampleSpan.MINUTE, 0)
    assert minutes[0].start_ms == present_ms - MINUTES_KEPT_MS
    tens = samples.list(GROUP, SampleSpan.TEN_MINUTES, 0)
    assert tens[0].start_ms == present_ms - kept_ms
    query = select(func.count()).select_from(log_samples)
    count = store.database.read(lambda connection: connection.scalar(query))
    assert count == 2 * (len(minutes) + len(tens)) + len(SampleSpan)
