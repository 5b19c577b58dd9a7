"""Routes of rules: which webhook wants which events."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Response

from app.api.access import CallerDependency
from app.api.doors import DoorsDependency
from app.api.models.documents import Listing
from app.api.models.rules import RuleDocument, RuleRequest
from app.api.openapi import refusals
from app.api.paging import Cursor, Limit
from app.api.problems import INVALID_REQUEST, MEDIA_TYPE_REFUSED, NOT_FOUND, TOO_MANY_RULES
from app.domain.rules import RULE_NAME

router = APIRouter(prefix="/webhooks/{webhook_id}/rules", tags=["webhooks"])

_NEW: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": RuleDocument, "description": "The rule is new."}
}

RuleName = Annotated[str, Path(pattern=RULE_NAME, description="What its owner calls the rule.")]


@router.put(
    "/{name}",
    operation_id="putRule",
    responses=_NEW | refusals(INVALID_REQUEST, NOT_FOUND, TOO_MANY_RULES, MEDIA_TYPE_REFUSED),
)
def put_rule(
    webhook_id: str,
    name: RuleName,
    body: RuleRequest,
    response: Response,
    doors: DoorsDependency,
    caller: CallerDependency,
) -> RuleDocument:
    """Make a rule, or replace the one of this name; live within two seconds, here and elsewhere.

    An event that any rule of a webhook fits is owed to it, once however many fit.
    """
    rule, is_new = doors.store.put_rule(body.rule(webhook_id, name), of_account=caller.sees)
    if is_new:
        response.status_code = 201
        response.headers["location"] = f"/webhooks/{webhook_id}/rules/{name}"
    return RuleDocument.of(rule)


@router.get("", operation_id="listRules", responses=refusals(INVALID_REQUEST, NOT_FOUND))
def list_rules(
    webhook_id: str,
    doors: DoorsDependency,
    caller: CallerDependency,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[RuleDocument]:
    """List the rules of a webhook, by name."""
    page = doors.store.rules(webhook_id, cursor, limit, of_account=caller.sees)
    items = [RuleDocument.of(rule) for rule in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{name}", operation_id="getRule", responses=refusals(INVALID_REQUEST, NOT_FOUND))
def get_rule(
    webhook_id: str, name: RuleName, doors: DoorsDependency, caller: CallerDependency
) -> RuleDocument:
    """Look a rule up."""
    return RuleDocument.of(doors.store.rule(webhook_id, name, of_account=caller.sees))


@router.delete(
    "/{name}",
    operation_id="deleteRule",
    status_code=204,
    responses=refusals(INVALID_REQUEST, NOT_FOUND),
)
def delete_rule(
    webhook_id: str, name: RuleName, doors: DoorsDependency, caller: CallerDependency
) -> None:
    """Forget a rule; what was owed by it stays owed."""
    doors.store.delete_rule(webhook_id, name, of_account=caller.sees)
