"""Responses that take milliseconds to build, so that other threads than the loop's do it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

QUICK_ITEMS_MAX: Final = 200
"""The items, such as partitions, that the loop's thread describes and encodes in a few ms."""


class LazyResponse(NamedTuple):
    """A response that `build` makes on another thread; it must not read what the loop changes."""

    build: Callable[[], Any]


def lazy_if_large(items: int, build: Callable[[], T]) -> T | LazyResponse:
    """Return a response with few items at once, and how to build one with many."""
    return build() if items <= QUICK_ITEMS_MAX else LazyResponse(build)
