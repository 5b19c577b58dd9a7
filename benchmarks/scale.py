"""The size of a run: full, or one short round of every benchmark."""

import statistics
from collections.abc import Iterable
from typing import Final, NamedTuple


class Scale(NamedTuple):
    """Rounds and sizes of one run; every figure is the median over the rounds.

    A round measures each case once, so that other load on the machine affects all cases equally.
    """

    rounds: int
    case_s: float
    """Duration of one case in a round."""
    client_s: float
    """Duration of a stock client's case in a round."""
    webhook_s: float
    large_log_bytes: int
    small_log_bytes: int
    replay_logs: tuple[int, ...]
    """Records in each of the logs from which the same window is replayed."""
    replay_events: int
    """Events of the window that are addressed to the webhook."""
    delivery_logs: tuple[int, ...]
    """Deliveries in each of the logs in which deliveries are looked up."""
    topics: int
    """Topics of the cluster with many topics; each has eight partitions."""
    single_events: int
    """Events of a replay with one event per request."""
    batched_events: int
    """Events of a replay with 100 events per request."""
    short_replays: int
    """Short replays whose first event is awaited, one after the other."""
    scanned_records: int
    """Records of a window in which few belong to the webhook."""
    live_events: int
    """Events in the backlog of the live path."""
    live_s: float
    """Duration for which events are published at a steady rate."""
    matched_rules: tuple[int, ...]
    """Numbers of rules with which events are matched."""
    mirrored_records: int
    """Records in the backlog of a mirror."""
    audited_sets: int
    """Sets of messages that a producer sends with and without the audit."""
    open_jobs: int
    memory_events: int
    """Events of each replay when the worker's memory is measured."""
    loaded_records: int
    """Records of a nightly load."""
    idle_s: float
    """Duration for which an idle service is observed."""
    mutated_requests: int
    """Mutated requests to a broker that serves a stock client."""
    soak_s: float
    """Duration of the load under which memory must not grow."""


FULL: Final = Scale(
    rounds=3,
    case_s=0.6,
    client_s=2.0,
    webhook_s=1.0,
    large_log_bytes=10 * 10**9,
    small_log_bytes=10**8,
    replay_logs=(10**5, 10**6, 10**7),
    replay_events=20_000,
    delivery_logs=(10**4, 10**6),
    topics=1_000,
    single_events=20_000,
    batched_events=300_000,
    short_replays=50,
    scanned_records=1_500_000,
    live_events=20_000,
    live_s=4.0,
    matched_rules=(10**2, 10**4, 10**6),
    mirrored_records=300_000,
    audited_sets=10_000,
    open_jobs=1_000,
    memory_events=1_000_000,
    loaded_records=10_000_000,
    idle_s=60.0,
    mutated_requests=1_000_000,
    soak_s=3_600.0,
)

QUICK: Final = Scale(
    rounds=1,
    case_s=0.1,
    client_s=0.5,
    webhook_s=0.3,
    large_log_bytes=5 * 10**8,
    small_log_bytes=10**8,
    replay_logs=(10**5, 5 * 10**5),
    replay_events=3_000,
    delivery_logs=(10**4, 5 * 10**4),
    topics=100,
    single_events=5_000,
    batched_events=60_000,
    short_replays=10,
    scanned_records=300_000,
    live_events=4_000,
    live_s=2.0,
    matched_rules=(10**2, 10**4),
    mirrored_records=30_000,
    audited_sets=1_000,
    open_jobs=200,
    memory_events=60_000,
    loaded_records=1_000_000,
    idle_s=10.0,
    mutated_requests=20_000,
    soak_s=20.0,
)


def median(values: Iterable[float]) -> float:
    """Return the median of the rounds' values."""
    return statistics.median(values)
