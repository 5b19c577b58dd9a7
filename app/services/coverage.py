"""Use case of coverage: which rules can match an event that the account is granted."""

from collections.abc import Sequence

from app.domain.rules import Rule
from app.services.services import Services


def find_covered_names(services: Services, webhook_id: str, rules: Sequence[Rule]) -> set[str]:
    """The names of those of a webhook's rules that a grant of its account covers. Blocks.

    A rule is covered if an event may exist that both the rule and a grant match.

    Raises:
        WebhookNotFound: the webhook does not exist.
        StoreUnavailable.
    """
    account_id = services.store.webhook(webhook_id).account_id
    return {name for _, name in services.store.find_covered_rules(account_id, rules)}
