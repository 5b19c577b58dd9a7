"""An index of patterns that finds those that an event meets.

The values of an event at a path are its scalars there; elements of arrays count each. Conditions on
members of the same array element must be met by one element.

Each pattern is filed under one of its paths, by the values that it allows there or, if operators
decide, by the path alone. So an event is compared only with patterns that may fit.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from app.domain.condition_index import Entries, K
from app.domain.event_values import comparable_value
from app.domain.patterns import CompiledPattern, compile_pattern
from app.domain.rules import Alternatives, Conditions

_ABSENT: Final[dict[str, Any]] = {}
"""In place of a missing value: an object has no value of its own, and this one no members."""


class _Member:
    """A member that patterns name: the test of its own values, and its members."""

    __slots__ = ("members", "test")

    def __init__(self) -> None:
        self.test: CompiledPattern | None = None
        self.members: dict[str, _Member] = {}

    def is_met(self, value: Any, without: "_MetWithout") -> bool:
        """Whether the value of this member meets all conditions on it and on its members."""
        if not isinstance(value, list):
            return self._is_met_by(value, without)
        elements = list(_elements(value)) or [_ABSENT]
        return any(self._is_met_by(each, without) for each in elements)

    def _is_met_by(self, element: Any, without: "_MetWithout") -> bool:
        content = element if isinstance(element, dict) else _ABSENT
        if self.test is not None and not (
            without.is_allowed(self) if content is element else self.test.allows(element)
        ):
            return False
        for name, member in self.members.items():
            if not (member.is_met(content[name], without) if name in content else without[member]):
                return False
        return True


class _MetWithout(dict[_Member, bool]):
    """Whether the conditions on a member, and on its members, are met by an element without it.

    It depends on the event, as another element may have a value, and not on the element. So each
    member is searched once, however many elements of an array lack it.
    """

    def __init__(self, root: _Member, event: Mapping[str, Any]) -> None:
        super().__init__()
        self._root = root
        self._event = event
        self._with_values: AbstractSet[_Member] | None = None

    def __missing__(self, member: _Member) -> bool:
        is_met = (member.test is None or self.is_allowed(member)) and all(
            self[each] for each in member.members.values()
        )
        self[member] = is_met
        return is_met

    def is_allowed(self, member: _Member) -> bool:
        """Whether an element may lack a value of the member itself."""
        assert member.test is not None
        if not member.test.allows_absence:
            return False
        if self._with_values is None:
            self._with_values = _members_with_values(self._root, self._event)
        return member not in self._with_values


def _members_with_values(root: _Member, event: Mapping[str, Any]) -> set[_Member]:
    """The members for which an event has a scalar, or an array with one."""
    found = set()
    pending = [(root, event)]
    for parent, content in pending:
        for name in parent.members.keys() & content.keys():
            member, value = parent.members[name], content[name]
            for each in _elements(value) if isinstance(value, list) else (value,):
                if isinstance(each, dict):
                    pending.append((member, each))
                else:
                    found.add(member)
    return found


def _find(path: Sequence[str], event: Mapping[str, Any]) -> Any:
    """The value at a path, or the first array on the way to it; `_ABSENT` without one."""
    value: Any = event
    for step in path:
        if isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(value, list):
            return value
        else:
            return _ABSENT
    return value


class EventPattern:
    """The patterns of one rule, which an event must all meet."""

    __slots__ = ("_root", "_tests", "anchor", "values")

    def __init__(self, where: Conditions) -> None:
        self._root = _Member()
        self._tests: list[tuple[tuple[str, ...], CompiledPattern]] = []
        self.anchor: tuple[str, ...] | None = None
        """A path at which a matching event has a value; None if it may lack all."""
        self.values: frozenset[object] | None = None
        """The values of which it has one at the anchor; None if operators decide."""
        for path, condition in where:
            assert isinstance(condition, Alternatives)
            self._add(tuple(path.split(".")), compile_pattern(condition))

    def _add(self, path: tuple[str, ...], test: CompiledPattern) -> None:
        member = self._root
        for step in path:
            member = member.members.setdefault(step, _Member())
        member.test = test
        self._tests.append((path, test))
        if test.allows_absence:
            return
        values = None if test.has_operators else test.values
        if self.anchor is None or (self.values is None and values is not None):
            self.anchor, self.values = path, values

    def is_met(self, event: Mapping[str, Any]) -> bool:
        """Whether an event meets it."""
        for path, test in self._tests:
            value = _find(path, event)
            if isinstance(value, list):
                # Which elements meet a condition matters to the others.
                return self._root.is_met(event, _MetWithout(self._root, event))
            if not (test.allows_absence if isinstance(value, dict) else test.allows(value)):
                return False
        return True


class _Place:
    """A node of the tree of anchors: what is filed under its path."""

    __slots__ = ("by_value", "members", "parent", "step", "whatever_value")

    def __init__(self, parent: "_Place | None" = None, step: str = "") -> None:
        self.parent = parent
        self.step = step
        self.members: dict[str, _Place] = {}
        self.by_value: dict[object, dict[EventPattern, None]] = {}
        self.whatever_value: dict[EventPattern, None] = {}

    @property
    def is_unused(self) -> bool:
        """Whether it leads to no pattern."""
        return not (self.members or self.by_value or self.whatever_value)


class PatternIndex:
    """Entries by their patterns, of which there is at least one, sorted by path."""

    def __init__(self) -> None:
        self._root = _Place()
        self._unanchored: dict[EventPattern, None] = {}
        self._patterns: dict[Conditions, EventPattern] = {}
        self._entries: dict[EventPattern, Entries[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def entries(self, patterns: Conditions) -> Entries[Any]:
        """The entries of these patterns, to be changed; they are created if needed."""
        pattern = self._patterns.get(patterns)
        if pattern is None:
            pattern = self._patterns[patterns] = EventPattern(patterns)
            self._entries[pattern] = {}
            for filed in self._places(pattern):
                filed[pattern] = None
        return self._entries[pattern]

    def forget(self, patterns: Conditions) -> None:
        """Remove the empty entries of these patterns."""
        pattern = self._patterns.pop(patterns)
        del self._entries[pattern]
        for filed in self._places(pattern):
            del filed[pattern]
        if pattern.anchor is not None:
            _remove_unused(self._place(pattern.anchor))

    def match(self, event: Mapping[str, Any], fits: Mapping[K, bool]) -> set[str]:
        """The owners whose patterns the event meets, under the keys that `fits` has as true."""
        owners: set[str] = set()
        for pattern in self._candidates(event):
            entries = self._entries[pattern]
            keys = [key for key in entries if fits[key]]
            if keys and pattern.is_met(event):
                for key in keys:
                    owners.update(entries[key])
        return owners

    def _candidates(self, event: Mapping[str, Any]) -> dict[EventPattern, None]:
        """The patterns that are filed under a value or a path of the event."""
        found = dict(self._unanchored)
        # Many elements of an array may lead to the same patterns, which are added once.
        added: set[int] = set()
        pending = [(self._root.members, event)]
        for members, content in pending:
            for step in members.keys() & content.keys():
                place, value = members[step], content[step]
                for each in _elements(value) if isinstance(value, list) else (value,):
                    if isinstance(each, dict):
                        if place.members:
                            pending.append((place.members, each))
                        continue
                    filed = place.whatever_value
                    if filed and id(filed) not in added:
                        added.add(id(filed))
                        found.update(filed)
                    of_value = place.by_value and place.by_value.get(comparable_value(each))
                    if of_value and id(of_value) not in added:
                        added.add(id(of_value))
                        found.update(of_value)
        return found

    def _places(self, pattern: EventPattern) -> Iterator[dict[EventPattern, None]]:
        """Where a pattern is filed."""
        if pattern.anchor is None:
            yield self._unanchored
            return
        place = self._place(pattern.anchor)
        if pattern.values is None:
            yield place.whatever_value
            return
        for value in pattern.values:
            yield place.by_value.setdefault(value, {})

    def _place(self, path: Sequence[str]) -> _Place:
        place = self._root
        for step in path:
            if step not in place.members:
                place.members[step] = _Place(place, step)
            place = place.members[step]
        return place


def _elements(array: list[Any]) -> Iterator[Any]:
    """The scalars and objects in an array, and in arrays within it."""
    # Not recursive: an event may be nested deeper than the stack of Python is.
    pending = [iter(array)]
    while pending:
        for each in pending[-1]:
            if isinstance(each, list):
                pending.append(iter(each))
                break
            yield each
        else:
            pending.pop()


def _remove_unused(place: _Place) -> None:
    for value in [value for value, filed in place.by_value.items() if not filed]:
        del place.by_value[value]
    while place.parent is not None and place.is_unused:
        del place.parent.members[place.step]
        place = place.parent
