"""An index of rules, or of grants, that finds the owners of those that match an event.

The owner of a rule is a webhook, that of a grant an account. For each event type the index keeps
which globs match, and which owners have a rule without conditions for it. Rules with conditions are
found by the values in the event: see `filter_index`. So the cost of an event depends on the rules
that match it, not on the number of rules; only patterns of operators are evaluated one by one.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple, Protocol

from app.domain.condition_index import Owners, add_owner, remove_owner
from app.domain.event_values import EventBody
from app.domain.filter_index import FilterIndex
from app.domain.globs import GlobIndex
from app.domain.rules import Conditions

TYPES_KEPT: Final = 1_000
IDS_KEPT: Final = 1_000_000
"""Event types whose matches are kept, and the ids in them; beyond either, the oldest is dropped."""

_NO_OWNERS: Final = frozenset[str]()


class Selector(Protocol):
    """What rules and grants have in common: a name, globs for the event type, and conditions."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def event_types(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def where(self) -> Conditions: ...  # noqa: D102


class MatchingOwners(Collection[str]):
    """The owners with a matching rule, in sorted order; valid until the index is changed."""

    __slots__ = ("_further", "_unconditional")

    def __init__(self, unconditional: list[str], further: AbstractSet[str]) -> None:
        """Combine sorted owners and `further` ones, which are not among them."""
        self._unconditional = unconditional
        self._further = further

    def __len__(self) -> int:
        return len(self._unconditional) + len(self._further)

    def __contains__(self, owner: object) -> bool:
        return owner in self._further or _contains(self._unconditional, owner)

    def __iter__(self) -> Iterator[str]:
        if self._further:
            return iter(sorted([*self._unconditional, *self._further]))
        return iter(self._unconditional)


class _Entry(NamedTuple):
    """A rule or a grant in the index."""

    globs: "_GlobList"
    where: Conditions


class _GlobList:
    """The globs of a rule, shared by all rules that list the same."""

    __slots__ = ("globs", "rules")

    def __init__(self, globs: tuple[str, ...]) -> None:
        self.globs = globs
        self.rules = 0


class _Glob:
    """The rules that list a glob: owners of unconditional ones, and the other rules' number."""

    __slots__ = ("conditional", "lists", "owners")

    def __init__(self) -> None:
        self.lists = 0
        self.owners: Owners = {}
        self.conditional = 0


class _TypeMatches(dict[_GlobList, bool]):
    """What matches one event type, and whether a list of globs does, which is computed once."""

    def __init__(self, version: int, globs: frozenset[str]) -> None:
        super().__init__()
        self.version = version
        self.globs = globs
        self.unconditional: list[str] = []
        """The sorted owners of rules for this type without conditions."""
        self.has_conditional = False

    def __missing__(self, globs: _GlobList) -> bool:
        matches = self[globs] = not self.globs.isdisjoint(globs.globs)
        return matches


class MatchIndex:
    """Rules, or grants, by owner and name, added and removed one by one."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, _Entry]] = {}
        self._lists: dict[tuple[str, ...], _GlobList] = {}
        self._globs: dict[str, _Glob] = {}
        self._glob_index = GlobIndex()
        self._filters = FilterIndex()
        self._types: dict[str, _TypeMatches] = {}
        self._ids_kept = 0
        self._version = 0
        """Counts the changes after which `_types` must be computed again."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def has_conditions(self) -> bool:
        """Whether any rule has conditions on the payload."""
        return bool(self._filters)

    def put(self, owner: str, rule: Selector) -> None:
        """Add a rule, replacing that of the same owner and name."""
        self.remove(owner, rule.name)
        globs = self._list(rule.event_types)
        globs.rules += 1
        self._entries.setdefault(owner, {})[rule.name] = _Entry(globs, rule.where)
        self._count += 1
        if rule.where:
            self._filters.add(rule.where, globs, owner)
            self._count_conditional(globs, 1)
        else:
            for glob in globs.globs:
                add_owner(self._globs[glob].owners, owner)
            self._version += 1

    def remove(self, owner: str, name: str) -> None:
        """Remove a rule, if it exists."""
        entry = self._entries.get(owner, {}).pop(name, None)
        if entry is None:
            return
        self._count -= 1
        if not self._entries[owner]:
            del self._entries[owner]
        globs = entry.globs
        if entry.where:
            self._filters.remove(entry.where, globs, owner)
            self._count_conditional(globs, -1)
        else:
            for glob in globs.globs:
                remove_owner(self._globs[glob].owners, owner)
            self._version += 1
        globs.rules -= 1
        if not globs.rules:
            self._forget_list(globs)

    def remove_owner(self, owner: str) -> None:
        """Remove all rules of an owner."""
        for name in self.names_of(owner):
            self.remove(owner, name)

    def names_of(self, owner: str) -> list[str]:
        """The names of an owner's rules."""
        return list(self._entries.get(owner, ()))

    def match(self, event_type: str, body: EventBody) -> MatchingOwners:
        """The owners of the rules that match an event.

        `body` is parsed only if a rule for this type has conditions. A body that is not a JSON
        object matches only rules without conditions.
        """
        matches = self._types.get(event_type)
        if matches is None or matches.version != self._version:
            matches = self._learn(event_type)
        unconditional = matches.unconditional
        event = body.document if matches.has_conditional else None
        if not isinstance(event, dict):
            return MatchingOwners(unconditional, _NO_OWNERS)
        found = self._filters.match(event, matches)
        further = {each for each in found if not _contains(unconditional, each)}
        return MatchingOwners(unconditional, further)

    def _learn(self, event_type: str) -> _TypeMatches:
        """Compute and keep what matches an event type."""
        self._drop_type(event_type)
        matches = _TypeMatches(self._version, frozenset(self._glob_index.match(event_type)))
        found = [self._globs[glob] for glob in matches.globs]
        matches.unconditional = sorted(set().union(*(each.owners for each in found)))
        matches.has_conditional = any(each.conditional for each in found)
        self._types[event_type] = matches
        self._ids_kept += len(matches.unconditional)
        while self._keeps_too_much():
            self._drop_type(next(iter(self._types)))
        return matches

    def _keeps_too_much(self) -> bool:
        kept = len(self._types)
        return kept > TYPES_KEPT or (kept > 1 and self._ids_kept > IDS_KEPT)

    def _drop_type(self, event_type: str) -> None:
        matches = self._types.pop(event_type, None)
        if matches is not None:
            self._ids_kept -= len(matches.unconditional)

    def _list(self, event_types: tuple[str, ...]) -> _GlobList:
        globs = tuple(dict.fromkeys(event_types))
        found = self._lists.get(globs)
        if found is None:
            found = self._lists[globs] = _GlobList(globs)
            self._version += 1
            for glob in globs:
                if glob not in self._globs:
                    self._globs[glob] = _Glob()
                    self._glob_index.add(glob)
                self._globs[glob].lists += 1
        return found

    def _forget_list(self, globs: _GlobList) -> None:
        del self._lists[globs.globs]
        self._version += 1
        for glob in globs.globs:
            self._globs[glob].lists -= 1
            if not self._globs[glob].lists:
                del self._globs[glob]
                self._glob_index.remove(glob)

    def _count_conditional(self, globs: _GlobList, change: int) -> None:
        for glob in globs.globs:
            found = self._globs[glob]
            had_any = bool(found.conditional)
            found.conditional += change
            if had_any != bool(found.conditional):
                self._version += 1


def _contains(ids: list[str], wanted: Any) -> bool:
    """Whether sorted `ids` contain `wanted`."""
    place = bisect_left(ids, wanted)
    return place < len(ids) and ids[place] == wanted
