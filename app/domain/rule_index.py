"""An index of all rules that finds the webhooks whose rules match an event.

Rules are grouped by the set of paths in their conditions, and within a group by the values that
they require. An event needs one lookup per group, so the cost depends on the number of different
sets of paths, not on the number of rules or webhooks.
"""

import json
from typing import Any, Final

from app.domain.globs import glob_matches
from app.domain.rules import Rule, Scalar

Paths = tuple[str, ...]
Values = tuple[object, ...]
_Matches = dict[str, dict[tuple[str, str], None]]
"""The rules with the same values, as (webhook id, name), by their event type glob."""

_MISSING: Final = object()
"""Stands for a path without a scalar; unequal to every value of a rule."""

_TRUE, _FALSE = object(), object()


class RuleIndex:
    """The rules of all webhooks, added and removed one by one."""

    def __init__(self) -> None:
        self._rules: dict[str, dict[str, Rule]] = {}
        self._groups: dict[Paths, dict[Values, _Matches]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def has_conditions(self) -> bool:
        """Whether any rule has conditions on the payload."""
        return any(self._groups)

    def put(self, rule: Rule) -> None:
        """Add a rule, replacing that of the same webhook and name."""
        self.remove(rule.webhook_id, rule.name)
        self._rules.setdefault(rule.webhook_id, {})[rule.name] = rule
        self._count += 1
        paths, values = _conditions(rule)
        matches = self._groups.setdefault(paths, {}).setdefault(values, {})
        for glob in rule.event_types:
            matches.setdefault(glob, {})[rule.webhook_id, rule.name] = None

    def remove(self, webhook_id: str, name: str) -> None:
        """Remove a rule, if it exists."""
        rule = self._rules.get(webhook_id, {}).pop(name, None)
        if rule is not None:
            self._count -= 1
            self._remove_from_group(rule)

    def remove_webhook(self, webhook_id: str) -> None:
        """Remove all rules of a webhook."""
        for name in list(self._rules.get(webhook_id, ())):
            self.remove(webhook_id, name)
        self._rules.pop(webhook_id, None)

    def match(self, event_type: str, body: bytes) -> list[str]:
        """The sorted ids of the webhooks that have a rule which matches an event.

        `body` is parsed only if a rule has conditions. A body that is not a JSON object matches
        only rules without conditions.
        """
        event = _parse(body) if self.has_conditions else None
        found: set[str] = set()
        for paths, by_values in self._groups.items():
            matches = by_values.get(tuple(_value_at(event, path) for path in paths))
            if matches is not None:
                for glob, keys in matches.items():
                    if glob_matches(glob, event_type):
                        found.update(webhook_id for webhook_id, _ in keys)
        return sorted(found)

    def _remove_from_group(self, rule: Rule) -> None:
        paths, values = _conditions(rule)
        by_values = self._groups[paths]
        matches = by_values[values]
        for glob in dict.fromkeys(rule.event_types):
            del matches[glob][rule.webhook_id, rule.name]
            if not matches[glob]:
                del matches[glob]
        if not matches:
            del by_values[values]
        if not by_values:
            del self._groups[paths]


def _conditions(rule: Rule) -> tuple[Paths, Values]:
    conditions = sorted(dict(rule.where).items())
    paths = tuple(path for path, _ in conditions)
    return paths, tuple(_comparable(value) for _, value in conditions)


def _comparable(value: Scalar) -> object:
    """A value that compares as JSON does: in Python, True equals 1 and False equals 0."""
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    return value


def _value_at(event: object, path: str) -> object:
    for step in path.split("."):
        if not isinstance(event, dict):
            return _MISSING
        event = event.get(step, _MISSING)
    if isinstance(event, dict | list):
        return _MISSING
    return _comparable(event)  # type: ignore[arg-type]  # neither dict nor list, so a scalar


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
