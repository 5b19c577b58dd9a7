"""Rules: which events are addressed to which webhook."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The pattern of a member as JSON text: a list of alternatives, see `patterns`."""

    text: str


Condition = Scalar | Alternatives
"""A value that a member must have, or a pattern for it."""

Conditions = tuple[tuple[str, Condition], ...]
"""Paths such as "data.userId" with their conditions."""

ConditionShape = str | tuple[str, str]
"""What a condition adds to the kind of a rule: its path, and a pattern's text."""

RULE_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
RULES_PER_WEBHOOK_MAX: Final = 10_000
KINDS_PER_WEBHOOK_MAX: Final = 20
"""See `Rule.kind`."""

KINDS_PER_ACCOUNT_MAX: Final = 40
GLOBS_PER_ACCOUNT_MAX: Final = 500
PATH_SETS_PER_ACCOUNT_MAX: Final = 6
"""Different kinds, globs and sets of paths in the rules of a developer's webhooks together.

They limit what one account adds to the cost of every event: a lookup for each set of paths that the
event has, a check for each kind with equal values, and, once for each new event type, a comparison
with each glob. `python -m benchmarks rules` measures rules that use them up."""

PATTERNS_PER_ACCOUNT_MAX: Final = 20
ALTERNATIVES_PER_ACCOUNT_MAX: Final = 100
"""Different patterns in the rules of a developer's webhooks, and their alternatives together.

The patterns of one rule count as one. An event that has their members is compared with each."""

CONDITIONS_MAX: Final = 5
TEXT_CHARACTERS_MAX: Final = 1_000
DEFAULT_RULE: Final = "default"
"""The name of the rule that a registration with `eventTypes` creates."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule `name` of a webhook: matching events are addressed to the webhook.

    One of the globs `event_types` must match the event's type. Each path of `where`, such as
    "data.userId", must have an equal JSON value in the event: 42 does not equal "42"; or a value
    that its pattern allows.
    """

    webhook_id: str
    name: str
    event_types: tuple[str, ...]
    where: Conditions = ()

    @property
    def kind(self) -> tuple[tuple[str, ...], tuple[ConditionShape, ...]]:
        """Its globs, paths and patterns, sorted. Rules of one kind differ only in their values."""
        return tuple(sorted(set(self.event_types))), shape_of(self.where)


def shape_of(where: Conditions) -> tuple[ConditionShape, ...]:
    """What conditions that differ only in their values have in common, sorted by path."""
    return tuple(
        (path, condition.text) if isinstance(condition, Alternatives) else path
        for path, condition in sorted(dict(where).items(), key=itemgetter(0))
    )


def split_patterns(where: Conditions) -> tuple[Conditions, Conditions]:
    """The conditions that are values, and those that are patterns, sorted by path."""
    patterns = [each for each in where if isinstance(each[1], Alternatives)]
    values = tuple(each for each in where if not isinstance(each[1], Alternatives))
    return values, tuple(sorted(patterns, key=itemgetter(0)))


def conditions_of(document: Mapping[str, Any]) -> Conditions:
    """The conditions of a JSON object of paths, whose lists are patterns."""
    return tuple(
        (path, alternatives_of(each) if isinstance(each, list) else each)
        for path, each in document.items()
    )


def alternatives_of(document: list[Any]) -> Alternatives:
    """The pattern that is this JSON list."""
    return Alternatives(json.dumps(document, ensure_ascii=False))


def document_of(where: Conditions) -> dict[str, Any]:
    """The JSON object of conditions: the inverse of `conditions_of`."""
    return {
        path: json.loads(each.text) if isinstance(each, Alternatives) else each
        for path, each in where
    }
