"""An index of conditions on the payload that finds those that an event meets.

The paths of all conditions form a tree, which is walked together with the event: only members that
both have are visited. Conditions with the same set of paths share a table, whose key is the values
that they require. So an event needs a lookup for each set of paths that it has, whatever the number
of conditions.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, TypeVar, cast

from app.domain.event_values import comparable_value
from app.domain.rules import Conditions, Scalar

_ABSENT: Final = object()
"""The value of a path without a scalar; no condition requires it."""

K = TypeVar("K")

Owners = dict[str, int]
"""Ids, with the number of rules of each."""

Entries = dict[K, Owners]
"""What is stored for the same conditions: owners by a key of the caller's choice."""


def add_owner(owners: Owners, owner: str) -> None:
    """Count one more rule of an owner."""
    owners[owner] = owners.get(owner, 0) + 1


def remove_owner(owners: Owners, owner: str) -> None:
    """Count one rule of an owner less; the last one removes the owner."""
    owners[owner] -= 1
    if not owners[owner]:
        del owners[owner]


class _Path:
    """A node of the tree: the end of one path, and the beginning of longer ones."""

    __slots__ = ("members", "parent", "step", "tables", "uses")

    def __init__(self, parent: "_Path | None" = None, step: str = "") -> None:
        self.parent = parent
        self.step = step
        self.members: dict[str, _Path] = {}
        self.tables: dict[tuple[_Path, ...], _Table] = {}
        """The tables of the sets of paths that begin with this one."""
        self.uses = 0
        """The number of tables of which it is a path."""


class _Values(dict[_Path, object]):
    """The values of an event by their paths."""

    def __missing__(self, path: _Path) -> object:
        return _ABSENT


class _Table(dict[object, Entries[Any]]):
    """The entries of one set of paths, by the value of its path, or the values of its paths."""

    def __init__(self, paths: tuple[_Path, ...]) -> None:
        super().__init__()
        self.key: Callable[[_Values], object] = itemgetter(*paths)


class ConditionIndex:
    """Entries by their conditions, of which there is at least one, and which are all values."""

    def __init__(self) -> None:
        self._root = _Path()

    def __bool__(self) -> bool:
        return bool(self._root.members)

    def entries(self, conditions: Conditions) -> Entries[Any]:
        """The entries of these conditions, to be changed; they are created if needed."""
        paths, values = self._place(conditions)
        first = paths[0]
        if paths not in first.tables:
            first.tables[paths] = _Table(paths)
            for path in paths:
                path.uses += 1
        return first.tables[paths].setdefault(values, {})

    def forget(self, conditions: Conditions) -> None:
        """Remove the empty entries of these conditions."""
        paths, values = self._place(conditions)
        table = paths[0].tables[paths]
        del table[values]
        if not table:
            del paths[0].tables[paths]
            for path in paths:
                path.uses -= 1
                _remove_unused(path)

    def match(self, event: Mapping[str, Any], fits: Mapping[K, bool]) -> set[str]:
        """The owners whose conditions the event meets, under the keys that `fits` has as true."""
        owners: set[str] = set()
        values, firsts = self._values(event)
        for first in firsts:
            for table in first.tables.values():
                for key, found in table.get(table.key(values), _NO_ENTRIES).items():
                    if fits[key]:
                        owners.update(found)
        return owners

    def _values(self, event: Mapping[str, Any]) -> tuple[_Values, list[_Path]]:
        """The event's values at the paths of conditions, and the paths that begin a set."""
        values = _Values()
        firsts = []
        pending = [(self._root.members, event)]
        for members, content in pending:
            for step in members.keys() & content.keys():
                path, value = members[step], content[step]
                if isinstance(value, dict):
                    if path.members:
                        pending.append((path.members, value))
                elif path.uses and not isinstance(value, list):
                    values[path] = comparable_value(value)
                    if path.tables:
                        firsts.append(path)
        return values, firsts

    def _place(self, conditions: Conditions) -> tuple[tuple[_Path, ...], object]:
        by_path = sorted(dict(conditions).items())
        paths = tuple(self._path(path) for path, _ in by_path)
        values = tuple(comparable_value(cast("Scalar", value)) for _, value in by_path)
        return paths, values[0] if len(values) == 1 else values

    def _path(self, text: str) -> _Path:
        path = self._root
        for step in text.split("."):
            if step not in path.members:
                path.members[step] = _Path(path, step)
            path = path.members[step]
        return path


_NO_ENTRIES: Final[Entries[Any]] = {}


def _remove_unused(path: _Path) -> None:
    while path.parent is not None and not (path.uses or path.members):
        del path.parent.members[path.step]
        path = path.parent
