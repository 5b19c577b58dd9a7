"""Rules: which events are addressed to which webhook."""

from dataclasses import dataclass
from typing import Final

Scalar = str | int | float | bool | None

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

CONDITIONS_MAX: Final = 5
DEFAULT_RULE: Final = "default"
"""The name of the rule that a registration with `eventTypes` creates."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule `name` of a webhook: matching events are addressed to the webhook.

    One of the globs `event_types` must match the event's type. Each path of `where`, such as
    "data.userId", must have an equal JSON value in the event: 42 does not equal "42".
    """

    webhook_id: str
    name: str
    event_types: tuple[str, ...]
    where: tuple[tuple[str, Scalar], ...] = ()

    @property
    def kind(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Its globs and its paths, sorted. Rules of one kind differ only in their values."""
        return tuple(sorted(set(self.event_types))), tuple(sorted(dict(self.where)))
