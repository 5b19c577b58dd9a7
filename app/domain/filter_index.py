"""An index of the conditions of rules, both values and patterns, by what an event meets.

Conditions that are only values are found by them, see `condition_index`; those that are only
patterns by a member, see `pattern_index`. Of those with both the values are looked up first.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

from app.domain.condition_index import ConditionIndex, K, add_owner, remove_owner
from app.domain.pattern_index import EventPattern, PatternIndex
from app.domain.rules import Conditions, split_patterns

PATTERNS_KEPT: Final = 4_096
"""Patterns next to values that are kept compiled."""


class FilterIndex:
    """Owners by conditions, of which each has at least one, and by a key of the caller's choice."""

    def __init__(self) -> None:
        self._values = ConditionIndex()
        self._patterns = PatternIndex()
        self._guarded = ConditionIndex()
        """Conditions with patterns as well: the key of an entry includes these."""
        self._has_patterns = False

    def __bool__(self) -> bool:
        return bool(self._values) or self._has_patterns

    def add(self, where: Conditions, key: object, owner: str) -> None:
        """Add an owner, who may be there already."""
        index, indexed, key = self._place(where, key)
        add_owner(index.entries(indexed).setdefault(key, {}), owner)
        self._note_patterns()

    def remove(self, where: Conditions, key: object, owner: str) -> None:
        """Remove an owner once."""
        index, indexed, key = self._place(where, key)
        entries = index.entries(indexed)
        remove_owner(entries[key], owner)
        if not entries[key]:
            del entries[key]
        if not entries:
            index.forget(indexed)
        self._note_patterns()

    def match(self, event: Mapping[str, Any], fits: Mapping[Any, bool]) -> set[str]:
        """The owners whose conditions the event meets, under the keys that `fits` has as true."""
        owners = self._values.match(event, fits)
        if self._has_patterns:
            owners |= self._patterns.match(event, fits)
            if self._guarded:
                owners |= self._guarded.match(event, _GuardedFits(event, fits))
        return owners

    def _note_patterns(self) -> None:
        self._has_patterns = bool(self._patterns) or bool(self._guarded)

    def _place(
        self, where: Conditions, key: object
    ) -> tuple[ConditionIndex | PatternIndex, Conditions, object]:
        """The index of these conditions, those by which it finds them, and the key there."""
        values, patterns = split_patterns(where)
        if not patterns:
            return self._values, values, key
        if not values:
            return self._patterns, patterns, key
        return self._guarded, values, (key, patterns)


class _GuardedFits(dict[tuple[K, Conditions], bool]):
    """Whether keys with patterns fit one event; each pattern is evaluated once."""

    def __init__(self, event: Mapping[str, Any], fits: Mapping[K, bool]) -> None:
        super().__init__()
        self._fits = fits
        self._meets = cache(lambda patterns: _compiled(patterns).is_met(event))

    def __missing__(self, guarded: tuple[K, Conditions]) -> bool:
        key, patterns = guarded
        return self._fits[key] and self._meets(patterns)


@lru_cache(maxsize=PATTERNS_KEPT)
def _compiled(patterns: Conditions) -> EventPattern:
    return EventPattern(patterns)
