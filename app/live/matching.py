"""Which webhooks want an event: every rule of the platform, ready for looking up.

Rules are filed by the set of paths that they ask for, and by the values they want to find there.
An event is looked up once for each set of paths that any rule has, so what it costs depends on how
many such sets there are, and not on how many rules or webhooks.
"""

import json
from typing import Any, Final

from app.domain.globs import glob_matches
from app.domain.rules import Rule, Scalar

Paths = tuple[str, ...]
Values = tuple[object, ...]
Wanted = dict[str, dict[tuple[str, str], None]]
"""The rules that want the same values, as (webhook id, name), by the glob of the event types."""

_NOTHING: Final = object()
"""What leads to no scalar: equal to no value that a rule can have."""

_TRUE, _FALSE = object(), object()


class RuleIndex:
    """The rules of all webhooks; they come and go one by one."""

    def __init__(self) -> None:
        self._rules: dict[str, dict[str, Rule]] = {}
        self._filed: dict[Paths, dict[Values, Wanted]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def asks_for_values(self) -> bool:
        """Whether any rule looks into the events."""
        return any(self._filed)

    def put(self, rule: Rule) -> None:
        """File a rule, in the place of the one before of its webhook and name."""
        self.remove(rule.webhook_id, rule.name)
        self._rules.setdefault(rule.webhook_id, {})[rule.name] = rule
        self._count += 1
        paths, values = _conditions(rule)
        wanted = self._filed.setdefault(paths, {}).setdefault(values, {})
        for glob in rule.event_types:
            wanted.setdefault(glob, {})[rule.webhook_id, rule.name] = None

    def remove(self, webhook_id: str, name: str) -> None:
        """Forget a rule, if it is there."""
        rule = self._rules.get(webhook_id, {}).pop(name, None)
        if rule is not None:
            self._count -= 1
            self._take_out(rule)

    def remove_webhook(self, webhook_id: str) -> None:
        """Forget every rule of a webhook."""
        for name in list(self._rules.get(webhook_id, ())):
            self.remove(webhook_id, name)
        self._rules.pop(webhook_id, None)

    def match(self, event_type: str, body: bytes) -> list[str]:
        """The ids of the webhooks that want an event, each once, in the order of their ids.

        `body` is read as JSON only if a rule asks for what is in it; one that is no JSON object
        fits rules without conditions alone.
        """
        event = _read(body) if self.asks_for_values else None
        found: set[str] = set()
        for paths, by_values in self._filed.items():
            wanted = by_values.get(tuple(_value_at(event, path) for path in paths))
            if wanted is not None:
                for glob, keys in wanted.items():
                    if glob_matches(glob, event_type):
                        found.update(webhook_id for webhook_id, _ in keys)
        return sorted(found)

    def _take_out(self, rule: Rule) -> None:
        paths, values = _conditions(rule)
        by_values = self._filed[paths]
        wanted = by_values[values]
        for glob in dict.fromkeys(rule.event_types):
            del wanted[glob][rule.webhook_id, rule.name]
            if not wanted[glob]:
                del wanted[glob]
        if not wanted:
            del by_values[values]
        if not by_values:
            del self._filed[paths]


def _conditions(rule: Rule) -> tuple[Paths, Values]:
    conditions = sorted(dict(rule.where).items())
    paths = tuple(path for path, _ in conditions)
    return paths, tuple(_comparable(value) for _, value in conditions)


def _comparable(value: Scalar) -> object:
    """A value that is equal to another's just when both are the same in JSON.

    In Python True is 1 and False is 0; in JSON they are of another kind. Numbers are one kind.
    """
    if value is True:
        return _TRUE
    if value is False:
        return _FALSE
    return value


def _value_at(event: object, path: str) -> object:
    for step in path.split("."):
        if not isinstance(event, dict):
            return _NOTHING
        event = event.get(step, _NOTHING)
    if isinstance(event, dict | list):
        return _NOTHING
    return _comparable(event)  # type: ignore[arg-type]  # what is no container is a scalar


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
