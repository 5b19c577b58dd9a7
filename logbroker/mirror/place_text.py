"""Partitions in a line of the log, however many there are: pure."""

from collections.abc import Iterable
from itertools import groupby

from logbroker.mirror.held import Place


def text_of(places: Iterable[Place]) -> str:
    """All of them, in order; those that follow each other as one: `clicks-0..15,logs-0`."""
    runs = groupby(enumerate(sorted(places)), key=lambda each: (each[1][0], each[1][1] - each[0]))
    return ",".join(_run([place for _, place in run]) for _, run in runs)


def _run(places: list[Place]) -> str:
    topic, first = places[0]
    last = places[-1][1]
    return f"{topic}-{first}" if first == last else f"{topic}-{first}..{last}"
