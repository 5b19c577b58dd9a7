"""The CPU of an idle service."""

import os
from threading import Event, Thread
from time import sleep

import psutil

from benchmarks.idle_cost import SUPERVISOR, idle_processes

SLEEPS = 200


def test_each_process_is_measured_over_the_same_seconds() -> None:
    (measured,) = idle_processes([psutil.Process(os.getpid())], 0.05)
    assert measured.name == SUPERVISOR
    assert measured.percent >= 0
    # The sleep itself is one.
    assert measured.switches_per_s > 0


def test_switches_of_a_thread_that_ends_are_not_subtracted() -> None:
    has_slept = Event()
    thread = Thread(target=_sleep_often_then_end, args=[has_slept])
    thread.start()
    has_slept.wait()
    (measured,) = idle_processes([psutil.Process(os.getpid())], 0.3)
    thread.join()
    assert measured.switches_per_s > 0


def _sleep_often_then_end(has_slept: Event) -> None:
    for _ in range(SLEEPS):
        sleep(0.0001)
    has_slept.set()
    sleep(0.1)
