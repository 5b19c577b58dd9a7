"""Use case of rule tests: which rules of a webhook a sample event matches, and if it gets it."""

from dataclasses import dataclass

from app.domain.accounts import ApiKey
from app.domain.event_values import EventBody
from app.domain.grants import GRANTS_PER_ACCOUNT_MAX
from app.domain.match_index import MatchIndex
from app.domain.rules import RULES_PER_WEBHOOK_MAX, Rule
from app.services.services import Services


@dataclass(frozen=True, slots=True)
class SampleEvent:
    """An event that is not published; `body` is what a receiver would get."""

    event_type: str
    body: bytes
    account_id: str | None = None


@dataclass(frozen=True, slots=True)
class SampleMatch:
    """The names of the matching rules, sorted, and what the live path would do with the event.

    `is_covered` says whether the account may receive it: a grant covers it, or it is published for
    the account.
    """

    rules: tuple[str, ...]
    is_covered: bool

    @property
    def is_addressed(self) -> bool:
        """Whether the event would be addressed to the webhook."""
        return bool(self.rules) and self.is_covered


def match_sample(
    services: Services,
    caller: ApiKey,
    webhook_id: str,
    sample: SampleEvent,
    draft: Rule | None = None,
) -> SampleMatch:
    """Compare a sample event with the rules of a webhook, as the live path does. Blocks.

    `draft` is compared as well, instead of the stored rule of its name.

    Raises:
        WebhookNotFound: no such webhook, or it belongs to another account.
        StoreUnavailable.
    """
    store, content = services.store, EventBody(sample.body)
    webhook = store.webhook(webhook_id, of_account=caller.account_filter)
    rules, grants = MatchIndex(), MatchIndex()
    stored = store.rules(webhook.id, limit=RULES_PER_WEBHOOK_MAX).items
    for rule in (*stored, *([draft] if draft else [])):
        rules.put(rule.name, rule)
    found = tuple(rules.match(sample.event_type, content))
    if sample.account_id is not None:
        return SampleMatch(found, sample.account_id == webhook.account_id)
    for grant in store.grants(webhook.account_id, limit=GRANTS_PER_ACCOUNT_MAX).items:
        grants.put(grant.name, grant)
    return SampleMatch(found, bool(grants.match(sample.event_type, content)))
