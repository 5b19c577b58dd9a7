"""A filter of event types by globs."""

from typing import Final

from app.domain.globs import glob_matches

_TYPES_CACHED: Final = 10_000
"""Producers choose event types freely and may send a new one with every event."""


class TypeFilter:
    """Matches event types against globs, and caches the results; without globs, all match."""

    def __init__(self, globs: tuple[str, ...] = ()) -> None:
        self._globs = globs
        self._matches: dict[str, bool] = {}

    def matches(self, event_type: str) -> bool:
        """Whether one of the globs matches the event type."""
        if not self._globs:
            return True
        matches = self._matches.get(event_type)
        if matches is None:
            if len(self._matches) >= _TYPES_CACHED:
                self._matches.clear()
            matches = any(glob_matches(glob, event_type) for glob in self._globs)
            self._matches[event_type] = matches
        return matches
