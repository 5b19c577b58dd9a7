"""An index of all grants that decides whether an account may receive an event.

The grants of an account are grouped by the set of paths in their conditions, and within a group by
the values that they require. The cost of an event depends on the kinds of grants of the accounts
that are asked for, not on the number of grants or accounts.
"""

from typing import Final

from app.domain.event_values import EventBody, comparable_value
from app.domain.globs import glob_matches
from app.domain.grants import Grant

Paths = tuple[str, ...]
Values = tuple[object, ...]
_Globs = dict[str, int]
"""The globs of grants with the same values, with the number of these grants."""

_MISSING: Final = object()
"""Stands for a path without a scalar; unequal to every value of a grant."""


class EventValues:
    """The values of an event at the paths of grants, each set of paths looked up once."""

    def __init__(self, body: EventBody) -> None:
        self._body = body
        self._values: dict[Paths, Values] = {}

    def at(self, paths: Paths) -> Values:
        """The values at the paths; a path without a scalar has one that equals nothing."""
        found = self._values.get(paths)
        if found is None:
            event = self._body.document
            found = self._values[paths] = tuple(_value_at(event, path) for path in paths)
        return found


class GrantIndex:
    """The grants of all accounts, added and removed one by one."""

    def __init__(self) -> None:
        self._accounts: dict[str, _AccountGrants] = {}

    def put(self, grant: Grant) -> None:
        """Add a grant, replacing that of the same account and name."""
        self.remove(grant.account_id, grant.name)
        self._accounts.setdefault(grant.account_id, _AccountGrants()).add(grant)

    def remove(self, account_id: str, name: str) -> None:
        """Remove a grant, if it exists."""
        account = self._accounts.get(account_id)
        if account is not None:
            account.remove(name)
            if not account.grants:
                del self._accounts[account_id]

    def covers(self, account_id: str, event_type: str, event: EventValues) -> bool:
        """Whether a grant of the account matches an event.

        A body that is not a JSON object matches only grants without conditions.
        """
        account = self._accounts.get(account_id)
        return account is not None and account.covers(event_type, event)


class _AccountGrants:
    """The grants of one account."""

    __slots__ = ("_groups", "_unconditional", "grants")

    def __init__(self) -> None:
        self.grants: dict[str, Grant] = {}
        # The globs of the grants without conditions; of the others, by their paths and values.
        self._unconditional: _Globs = {}
        self._groups: dict[Paths, dict[Values, _Globs]] = {}

    def add(self, grant: Grant) -> None:
        """Add a grant with a new name."""
        self.grants[grant.name] = grant
        globs = self._unconditional
        if grant.where:
            paths, values = _conditions(grant)
            globs = self._groups.setdefault(paths, {}).setdefault(values, {})
        for glob in set(grant.event_types):
            globs[glob] = globs.get(glob, 0) + 1

    def remove(self, name: str) -> None:
        """Remove a grant, if it exists."""
        grant = self.grants.pop(name, None)
        if grant is None:
            return
        if not grant.where:
            _remove_globs(self._unconditional, grant)
            return
        paths, values = _conditions(grant)
        by_values = self._groups[paths]
        _remove_globs(by_values[values], grant)
        if not by_values[values]:
            del by_values[values]
        if not by_values:
            del self._groups[paths]

    def covers(self, event_type: str, event: EventValues) -> bool:
        """Whether a grant matches an event."""
        if "*" in self._unconditional or _is_matched(event_type, self._unconditional):
            return True
        for paths, by_values in self._groups.items():
            globs = by_values.get(event.at(paths))
            if globs is not None and _is_matched(event_type, globs):
                return True
        return False


def _is_matched(event_type: str, globs: _Globs) -> bool:
    # A loop takes half the time of a generator here; this runs for every account of every event.
    for glob in globs:  # noqa: SIM110
        if glob_matches(glob, event_type):
            return True
    return False


def _remove_globs(globs: _Globs, grant: Grant) -> None:
    for glob in set(grant.event_types):
        globs[glob] -= 1
        if not globs[glob]:
            del globs[glob]


def _conditions(grant: Grant) -> tuple[Paths, Values]:
    conditions = sorted(dict(grant.where).items())
    paths = tuple(path for path, _ in conditions)
    return paths, tuple(comparable_value(value) for _, value in conditions)


def _value_at(event: object, path: str) -> object:
    for step in path.split("."):
        if not isinstance(event, dict):
            return _MISSING
        event = event.get(step, _MISSING)
    if isinstance(event, dict | list):
        return _MISSING
    return comparable_value(event)  # type: ignore[arg-type]  # neither dict nor list, so a scalar
