"""The CPU of an idle service."""

import os

import psutil

from benchmarks.idle_cost import SUPERVISOR, idle_processes


def test_each_process_is_measured_over_the_same_seconds() -> None:
    (measured,) = idle_processes([psutil.Process(os.getpid())], 0.05)
    assert measured.name == SUPERVISOR
    assert measured.percent >= 0
    # The sleep itself is one.
    assert measured.switches_per_s > 0
