"""Grants: which events an account may receive."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.domain.glob_overlap import globs_overlap
from app.domain.rules import Rule, Scalar

GRANT_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
GRANTS_PER_ACCOUNT_MAX: Final = 10_000
GRANT_KINDS_PER_ACCOUNT_MAX: Final = 20
"""See `GrantKind`. An event is compared with each kind of an account's grants, so this limits the
cost of an event per account."""

EVERYTHING: Final = "everything"
"""The name of the grant that the migration gives to the accounts that exist before it."""


@dataclass(frozen=True, slots=True)
class GrantKind:
    """What grants that differ only in their values have in common: sorted globs and paths."""

    event_types: tuple[str, ...]
    paths: tuple[str, ...]

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

    One of the globs `event_types` must match the event's type. Each path of `where` must have an
    equal JSON value in the event, as in a `Rule`.
    """

    account_id: str
    name: str
    event_types: tuple[str, ...]
    where: tuple[tuple[str, Scalar], ...] = ()

    @property
    def kind(self) -> GrantKind:
        """Its kind."""
        return GrantKind(tuple(sorted(set(self.event_types))), tuple(sorted(dict(self.where))))


def conditions_agree(rule: Rule, where: Sequence[tuple[str, Scalar]]) -> bool:
    """Whether an event can have the values that `rule` requires and those of `where`."""
    required = dict(rule.where)
    return all(
        path not in required or is_same_value(required[path], value) for path, value in where
    )


def is_same_value(one: Scalar, other: Scalar) -> bool:
    """Whether two JSON values are equal; in Python, True equals 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
