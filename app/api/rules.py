"""Routes of rules, which select the events of a webhook."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Response

from app.api.admission import CallerDependency
from app.api.models.documents import Listing
from app.api.models.rules import RuleDocument, RuleRequest
from app.api.openapi import ANY_ERROR, errors
from app.domain.rules import RULE_NAME, Rule
from app.http.dependencies import Cursor, Limit, ServicesDependency
from app.http.problems import INVALID_REQUEST, MEDIA_TYPE_REFUSED, NOT_FOUND, TOO_MANY_RULES
from app.services.coverage import find_covered_names
from app.services.services import Services

router = APIRouter(prefix="/webhooks/{webhook_id}/rules", tags=["webhooks"], responses=ANY_ERROR)

_NEW: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": RuleDocument, "description": "The rule is new."}
}

RuleName = Annotated[
    str, Path(pattern=RULE_NAME, description="The rule's name, chosen by its owner.")
]


@router.put(
    "/{name}",
    operation_id="putRule",
    responses=_NEW | errors(INVALID_REQUEST, NOT_FOUND, TOO_MANY_RULES, MEDIA_TYPE_REFUSED),
)
def put_rule(
    webhook_id: str,
    name: RuleName,
    body: RuleRequest,
    response: Response,
    services: ServicesDependency,
    caller: CallerDependency,
) -> RuleDocument:
    """Create or replace the rule of this name; every process uses it within two seconds.

    An event is addressed to a webhook, once, if it matches any of the webhook's rules, and a grant
    of its account covers the event. `coveredByGrant` is false if no grant does for any event of the
    rule.
    """
    rule, is_new = services.store.put_rule(
        body.rule(webhook_id, name), of_account=caller.account_filter
    )
    if is_new:
        response.status_code = 201
        response.headers["location"] = f"/webhooks/{webhook_id}/rules/{name}"
    return _documents(services, webhook_id, [rule])[0]


def _documents(services: Services, webhook_id: str, rules: Sequence[Rule]) -> list[RuleDocument]:
    covered = find_covered_names(services, webhook_id, rules)
    return [RuleDocument.of(rule, is_covered=rule.name in covered) for rule in rules]


@router.get("", operation_id="listRules", responses=errors(INVALID_REQUEST, NOT_FOUND))
def list_rules(
    webhook_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[RuleDocument]:
    """List the rules of a webhook, by name."""
    page = services.store.rules(webhook_id, cursor, limit, of_account=caller.account_filter)
    items = _documents(services, webhook_id, page.items)
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{name}", operation_id="getRule", responses=errors(INVALID_REQUEST, NOT_FOUND))
def get_rule(
    webhook_id: str, name: RuleName, services: ServicesDependency, caller: CallerDependency
) -> RuleDocument:
    """Get a rule."""
    rule = services.store.rule(webhook_id, name, of_account=caller.account_filter)
    return _documents(services, webhook_id, [rule])[0]


@router.delete(
    "/{name}",
    operation_id="deleteRule",
    status_code=204,
    responses=errors(INVALID_REQUEST, NOT_FOUND),
)
def delete_rule(
    webhook_id: str, name: RuleName, services: ServicesDependency, caller: CallerDependency
) -> None:
    """Delete a rule; events that it has matched are still delivered."""
    services.store.delete_rule(webhook_id, name, of_account=caller.account_filter)
