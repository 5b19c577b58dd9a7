"""Which webhook wants which events, as its owner says it."""

from dataclasses import dataclass
from typing import Final

from app.domain.model import Webhook

Scalar = str | int | float | bool | None

RULE_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
RULES_PER_WEBHOOK_MAX: Final = 10_000
KINDS_PER_WEBHOOK_MAX: Final = 20
"""Kinds of rules, see `Rule.kind`. Every event of the platform is held against each kind that there
is, so that what one webhook asks for must cost all others little."""

CONDITIONS_MAX: Final = 5
DEFAULT_RULE: Final = "default"
"""The name of the rule that a registration with `eventTypes` makes."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The entry `(webhook_id, name)` of the rules: an event that fits it is owed to the webhook.

    One of the globs `event_types` must match the event's type. Each path of `where` (such as
    "data.userId", from the top of the event) must lead to a value that is equal as JSON is: of
    the same kind, so that 42 is not "42".
    """

    webhook_id: str
    name: str
    event_types: tuple[str, ...]
    where: tuple[tuple[str, Scalar], ...] = ()

    @property
    def kind(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Its globs and its paths, sorted. Rules of one kind differ in their values alone."""
        return tuple(sorted(set(self.event_types))), tuple(sorted(dict(self.where)))


@dataclass(frozen=True, slots=True)
class RoutingChanges:
    """What changed in the routing table, all webhooks with all rules, up to `revision`.

    A webhook or rule is in it as it is now, however often it changed; `gone_rules` are pairs of
    webhook id and name. Things may come that the reader knows already, in any order. When
    `revision` is lower than the one asked after, these are all entries there are, and the reader
    forgets what it knew: it slept for too long, or the table was brought back from an older copy.
    """

    revision: int
    webhooks: tuple[Webhook, ...] = ()
    gone_webhooks: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    gone_rules: tuple[tuple[str, str], ...] = ()
