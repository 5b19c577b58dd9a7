"""Which webhook wants which events, as its owner says it."""

from dataclasses import dataclass
from typing import Final

Scalar = str | int | float | bool | None

RULE_NAME: Final = r"^[A-Za-z0-9_-]{1,64}$"
RULES_PER_WEBHOOK_MAX: Final = 10_000
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
