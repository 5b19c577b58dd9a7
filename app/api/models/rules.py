"""Bodies of the routes of rules."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document
from app.domain.rules import Rule, Scalar
from app.http.event_selections import SELECTION_EXAMPLE, EventSelection
from app.http.request_bodies import example


class RuleRequest(EventSelection):
    """A rule: events of one of these types with all of these values."""

    model_config = example(SELECTION_EXAMPLE)

    def rule(self, webhook_id: str, name: str) -> Rule:
        """The rule to store."""
        return Rule(webhook_id, name, tuple(self.event_types), tuple(self.where.items()))


class RuleDocument(Document):
    """A rule of a webhook."""

    model_config = example(
        SELECTION_EXAMPLE
        | {"webhookId": "wh_2yPqkM5dTn4v", "name": "default", "coveredByGrant": True}
    )

    webhook_id: str
    name: str
    event_types: list[str]
    where: dict[str, Scalar]
    covered_by_grant: bool = Field(
        description="Whether a grant of the account covers some event that the rule can match. "
        "If false, the rule matches only events that were published for the account."
    )

    @classmethod
    def of(cls, rule: Rule, *, is_covered: bool) -> Self:
        """The document of a rule."""
        return cls(
            webhook_id=rule.webhook_id,
            name=rule.name,
            event_types=list(rule.event_types),
            where=dict(rule.where),
            covered_by_grant=is_covered,
        )
