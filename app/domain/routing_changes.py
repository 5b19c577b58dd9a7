"""Changes of the routing table."""

from dataclasses import dataclass

from app.domain.grants import Grant
from app.domain.model import Webhook
from app.domain.rules import Rule


@dataclass(frozen=True, slots=True)
class RoutingChanges:
    """Changes of the routing table (all webhooks, rules and grants) up to `revision`.

    Entries have their current values; `gone_rules` are pairs of webhook id and name, `gone_grants`
    of account id and name. The reader may already know some. If `revision` is lower than the
    reader's, this is the whole table, and the reader must replace its copy: it paused for too long,
    or the database is a restored backup.
    """

    revision: int
    webhooks: tuple[Webhook, ...] = ()
    gone_webhooks: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    gone_rules: tuple[tuple[str, str], ...] = ()
    grants: tuple[Grant, ...] = ()
    gone_grants: tuple[tuple[str, str], ...] = ()
