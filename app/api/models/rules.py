"""Bodies of the routes of rules."""

from typing import Self

from pydantic import Field

from app.api.models.documents import Document
from app.domain.rules import Rule, document_of
from app.http.event_patterns import ConditionDocument
from app.http.event_selections import SELECTION_EXAMPLE, EventSelection
from app.http.request_bodies import example


class RuleRequest(EventSelection):
    """A rule: events of one of these types that meet all of these conditions."""

    model_config = example(SELECTION_EXAMPLE)

    def rule(self, webhook_id: str, name: str) -> Rule:
        """The rule to store."""
        return Rule(webhook_id, name, tuple(self.event_types), self.conditions)


class RuleDocument(Document):
    """A rule of a webhook."""

    model_config = example(
        SELECTION_EXAMPLE
        | {"webhookId": "wh_2yPqkM5dTn4v", "name": "default", "coveredByGrant": True}
    )

    webhook_id: str
    name: str
    event_types: list[str]
    where: dict[str, ConditionDocument]
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
            where=document_of(rule.where),
            covered_by_grant=is_covered,
        )


class SampleMatchDocument(Document):
    """What would happen to a sample event if it were published now."""

    model_config = example(
        {"matchingRules": ["default"], "coveredByGrant": True, "isAddressed": True}
    )

    matching_rules: tuple[str, ...] = Field(
        validation_alias="rules", description="The names of the rules that it matches."
    )
    covered_by_grant: bool = Field(
        validation_alias="is_covered",
        description="Whether the webhook's account may receive it: by a grant, or because "
        "`accountId` is this account.",
    )
    is_addressed: bool = Field(
        description="Whether it would be addressed to the webhook, that is both."
    )
