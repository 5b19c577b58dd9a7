"""Routes of grants, which select the events that an account may receive."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Response

from app.api.admission import CallerDependency, OperatorOnly
from app.api.models.documents import Listing
from app.api.models.grants import GrantDocument
from app.api.openapi import ANY_ERROR, errors
from app.domain.accounts import ApiKey
from app.domain.grants import GRANT_NAME
from app.http.dependencies import Cursor, Limit, ServicesDependency
from app.http.event_selections import GrantRequest
from app.http.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    TOO_MANY_GRANTS,
)
from app.store import AccountNotFound

router = APIRouter(prefix="/accounts/{account_id}/grants", tags=["accounts"], responses=ANY_ERROR)

_NEW: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": GrantDocument, "description": "The grant is new."}
}

GrantAccountId = Annotated[str, Path(max_length=40, description="The id of the account.")]
GrantName = Annotated[
    str, Path(pattern=GRANT_NAME, description="The grant's name, chosen by the operator.")
]


@router.put(
    "/{name}",
    operation_id="putGrant",
    responses=_NEW
    | errors(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, TOO_MANY_GRANTS, MEDIA_TYPE_REFUSED),
    dependencies=[OperatorOnly],
)
def put_grant(
    account_id: GrantAccountId,
    name: GrantName,
    body: GrantRequest,
    response: Response,
    services: ServicesDependency,
) -> GrantDocument:
    """Create or replace the grant of this name; the live path uses it within a second.

    An event without an account reaches the webhooks of an account only if one of the account's
    grants matches it, and a rule of the webhook as well.
    """
    grant, is_new = services.store.put_grant(body.grant(account_id, name))
    if is_new:
        response.status_code = 201
        response.headers["location"] = f"/accounts/{account_id}/grants/{name}"
    return GrantDocument.of(grant)


@router.get("", operation_id="listGrants", responses=errors(INVALID_REQUEST, NOT_FOUND))
def list_grants(
    account_id: GrantAccountId,
    services: ServicesDependency,
    caller: CallerDependency,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[GrantDocument]:
    """List the grants of an account, by name; a developer's key those of its own account."""
    _check_access(caller, account_id)
    page = services.store.grants(account_id, cursor, limit)
    items = [GrantDocument.of(grant) for grant in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{name}", operation_id="getGrant", responses=errors(INVALID_REQUEST, NOT_FOUND))
def get_grant(
    account_id: GrantAccountId,
    name: GrantName,
    services: ServicesDependency,
    caller: CallerDependency,
) -> GrantDocument:
    """Get a grant."""
    _check_access(caller, account_id)
    return GrantDocument.of(services.store.grant(account_id, name))


@router.delete(
    "/{name}",
    operation_id="deleteGrant",
    status_code=204,
    responses=errors(INVALID_REQUEST, FORBIDDEN, NOT_FOUND),
    dependencies=[OperatorOnly],
)
def delete_grant(account_id: GrantAccountId, name: GrantName, services: ServicesDependency) -> None:
    """Delete a grant; events that were addressed to webhooks before are still delivered."""
    services.store.delete_grant(account_id, name)


def _check_access(caller: ApiKey, account_id: str) -> None:
    """Return if the key may read the account; to others it does not exist.

    Raises:
        AccountNotFound: the key belongs to another account, and to no operator.
    """
    if caller.account_filter not in (None, account_id):
        raise AccountNotFound(account_id)
