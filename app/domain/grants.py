"""Grants: which events an account may receive."""

from dataclasses import dataclass
from typing import Final, cast

from app.domain.glob_overlap import globs_overlap
from app.domain.patterns import compile_pattern
from app.domain.rules import (
    Alternatives,
    Condition,
    Conditions,
    ConditionShape,
    Rule,
    Scalar,
    shape_of,
)

GRANT_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
GRANTS_PER_ACCOUNT_MAX: Final = 10_000
GRANT_KINDS_PER_ACCOUNT_MAX: Final = 20
"""See `GrantKind`. An event is compared with each kind of an account's grants, so this limits the
cost of an event per account."""

EVERYTHING: Final = "everything"
"""The name of the grant that the migration gives to the accounts that exist before it."""


@dataclass(frozen=True, slots=True)
class GrantKind:
    """What grants that differ only in their values have in common: sorted globs and conditions."""

    event_types: tuple[str, ...]
    shape: tuple[ConditionShape, ...]
    """See `rules.shape_of`."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its conditions."""
        return tuple(each if isinstance(each, str) else each[0] for each in self.shape)

    @property
    def has_patterns(self) -> bool:
        """Whether a condition is a pattern."""
        return any(not isinstance(each, str) for each in self.shape)

    def can_overlap(self, rule: Rule) -> bool:
        """Whether an event type exists that both a grant of this kind and `rule` match."""
        return any(
            globs_overlap(granted, wanted)
            for granted in self.event_types
            for wanted in rule.event_types
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """The grant `name` of an account: webhooks of the account may receive matching events.

    One of the globs `event_types` must match the event's type, and the event must meet the
    conditions `where`, as those of a `Rule`.
    """

    account_id: str
    name: str
    event_types: tuple[str, ...]
    where: Conditions = ()

    @property
    def kind(self) -> GrantKind:
        """Its kind."""
        return GrantKind(tuple(sorted(set(self.event_types))), shape_of(self.where))


def conditions_agree(rule: Rule, where: Conditions) -> bool:
    """Whether an event can meet the conditions of `rule` and `where`."""
    required = dict(rule.where)
    return all(
        path not in required or _can_both_hold(required[path], condition)
        for path, condition in where
    )


def _can_both_hold(one: Condition, other: Condition) -> bool:
    """Whether the same member can meet both conditions."""
    if isinstance(one, Alternatives) and isinstance(other, Alternatives):
        # An array can have a value for each.
        first, second = compile_pattern(one), compile_pattern(other)
        return (first.allows_values and second.allows_values) or (
            first.allows_absence and second.allows_absence
        )
    if isinstance(one, Alternatives):
        return compile_pattern(one).allows(cast("Scalar", other))
    if isinstance(other, Alternatives):
        return compile_pattern(other).allows(one)
    return is_same_value(one, other)


def is_same_value(one: Scalar, other: Scalar) -> bool:
    """Whether two JSON values are equal; in Python, True equals 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
