"""Routes of notice endpoints: register, read, verify, delete."""

from fastapi import APIRouter, Response

from app.api.admission import CallerDependency
from app.api.models.documents import Listing
from app.api.models.notice_endpoints import (
    NoticeEndpointDocument,
    NoticeEndpointRequest,
    NoticeEndpointWithSecret,
)
from app.api.openapi import errors
from app.http.dependencies import AccountId, Cursor, Limit, ServicesDependency
from app.http.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOT_VALIDATED,
    TOO_MANY_NOTICE_ENDPOINTS,
    URL_REFUSED,
)
from app.services import notice_endpoints
from app.services.authentication import select_account

router = APIRouter(prefix="/notice-endpoints", tags=["notices"])


@router.post(
    "",
    operation_id="createNoticeEndpoint",
    status_code=201,
    responses=errors(
        INVALID_REQUEST,
        URL_REFUSED,
        FORBIDDEN,
        NOT_FOUND,
        TOO_MANY_NOTICE_ENDPOINTS,
        MEDIA_TYPE_REFUSED,
    ),
)
async def create_notice_endpoint(
    body: NoticeEndpointRequest,
    response: Response,
    services: ServicesDependency,
    caller: CallerDependency,
) -> NoticeEndpointWithSecret:
    """Register an endpoint for notices. Only this response has the secret that signs them.

    The receiver is verified at once, as that of a webhook. If it passes, the endpoint is ENABLED;
    otherwise it is PENDING and `statusReason` says why: deploy the secret, then enable it.
    """
    endpoint = await notice_endpoints.register_notice_endpoint(
        services, caller, body.registration()
    )
    response.headers["location"] = f"/notice-endpoints/{endpoint.id}"
    response.headers["cache-control"] = "no-store"
    return NoticeEndpointWithSecret.of(endpoint)


@router.get("", operation_id="listNoticeEndpoints", responses=errors(INVALID_REQUEST, FORBIDDEN))
def list_notice_endpoints(
    services: ServicesDependency,
    caller: CallerDependency,
    account_id: AccountId = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[NoticeEndpointDocument]:
    """List endpoints for notices, the latest first."""
    of_account = select_account(caller, account_id)
    page = services.store.notice_endpoints(cursor, limit, of_account=of_account)
    items = [NoticeEndpointDocument.of(endpoint) for endpoint in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{endpoint_id}", operation_id="getNoticeEndpoint", responses=errors(NOT_FOUND))
def get_notice_endpoint(
    endpoint_id: str, services: ServicesDependency, caller: CallerDependency
) -> NoticeEndpointDocument:
    """Get an endpoint for notices."""
    endpoint = services.store.notice_endpoint(endpoint_id, of_account=caller.account_filter)
    return NoticeEndpointDocument.of(endpoint)


@router.post(
    "/{endpoint_id}/enable",
    operation_id="enableNoticeEndpoint",
    responses=errors(NOT_FOUND, NOT_VALIDATED),
)
async def enable_notice_endpoint(
    endpoint_id: str, services: ServicesDependency, caller: CallerDependency
) -> NoticeEndpointDocument:
    """Verify the receiver again, and enable the endpoint if it passes."""
    endpoint = await notice_endpoints.enable_notice_endpoint(services, caller, endpoint_id)
    return NoticeEndpointDocument.of(endpoint)


@router.delete(
    "/{endpoint_id}",
    operation_id="deleteNoticeEndpoint",
    status_code=204,
    responses=errors(NOT_FOUND),
)
def delete_notice_endpoint(
    endpoint_id: str, services: ServicesDependency, caller: CallerDependency
) -> None:
    """Delete an endpoint for notices, and those that were not sent to it yet."""
    services.store.delete_notice_endpoint(endpoint_id, of_account=caller.account_filter)
