"""Routes of notice endpoints: register, read, change, verify, test, disable, delete."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from app.api.admission import CallerDependency
from app.api.models.documents import Listing
from app.api.models.notice_endpoints import NoticeEndpointDocument, NoticeEndpointWithSecret
from app.api.models.webhooks import TrialDocument
from app.api.openapi import ANY_ERROR, errors
from app.domain.account_notices import NoticeEndpoint
from app.http.dependencies import AccountId, Cursor, Limit, ServicesDependency
from app.http.notice_endpoints import (
    AddressConfirmation,
    NoticeEndpointChange,
    NoticeEndpointRequest,
)
from app.http.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOT_VALIDATED,
    TOO_MANY_NOTICE_ENDPOINTS,
    URL_REFUSED,
)
from app.http.request_bodies import Disabling, Rotation
from app.services import mail_endpoints, notice_endpoints
from app.services.authentication import select_account
from app.services.services import now_ms

router = APIRouter(prefix="/notice-endpoints", tags=["notices"], responses=ANY_ERROR)


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
    otherwise it is PENDING and `statusReason` says why: deploy the secret, then enable it. An
    e-mail address gets a mail with a code, and is PENDING until it is confirmed.
    """
    endpoint = await notice_endpoints.register_notice_endpoint(
        services, caller, body.registration()
    )
    response.headers["location"] = f"/notice-endpoints/{endpoint.id}"
    return _with_secret(endpoint, response)


def _with_secret(endpoint: NoticeEndpoint, response: Response) -> NoticeEndpointWithSecret:
    response.headers["cache-control"] = "no-store"
    return NoticeEndpointWithSecret.of(endpoint, now_ms())


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
    present_ms = now_ms()
    items = [NoticeEndpointDocument.of(endpoint, present_ms) for endpoint in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)


@router.get("/{endpoint_id}", operation_id="getNoticeEndpoint", responses=errors(NOT_FOUND))
def get_notice_endpoint(
    endpoint_id: str, services: ServicesDependency, caller: CallerDependency
) -> NoticeEndpointDocument:
    """Get an endpoint for notices."""
    endpoint = services.store.notice_endpoint(endpoint_id, of_account=caller.account_filter)
    return NoticeEndpointDocument.of(endpoint, now_ms())


@router.patch(
    "/{endpoint_id}",
    operation_id="updateNoticeEndpoint",
    responses=errors(INVALID_REQUEST, URL_REFUSED, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
async def update_notice_endpoint(
    endpoint_id: str,
    body: NoticeEndpointChange,
    services: ServicesDependency,
    caller: CallerDependency,
) -> NoticeEndpointDocument:
    """Change an endpoint for notices; missing members keep their values.

    The receiver at a new URL is verified first. If it does not pass, the endpoint is PENDING. So
    it is with a new e-mail address until that is confirmed.
    """
    endpoint = await notice_endpoints.update_notice_endpoint(
        services,
        caller,
        endpoint_id,
        url=body.url,
        description=body.description,
        event_types=body.new_event_types,
    )
    return NoticeEndpointDocument.of(endpoint, now_ms())


@router.post(
    "/{endpoint_id}/secret/rotate",
    operation_id="rotateNoticeSecret",
    responses=errors(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def rotate_notice_secret(
    endpoint_id: str,
    response: Response,
    services: ServicesDependency,
    caller: CallerDependency,
    body: Annotated[Rotation, Body()] = Rotation(),  # noqa: B008  frozen
) -> NoticeEndpointWithSecret:
    """Give an endpoint for notices a new secret; only this response has it.

    During the grace period the previous secret also signs. One previous secret is kept: a second
    rotation drops the first. Setting the current secret again changes nothing, so a request may be
    repeated.
    """
    endpoint = notice_endpoints.rotate_notice_secret(
        services, caller, endpoint_id, body.secret, body.grace_period_seconds
    )
    return _with_secret(endpoint, response)


@router.post(
    "/{endpoint_id}/test",
    operation_id="testNoticeEndpoint",
    responses=errors(NOT_FOUND, NOT_VALIDATED),
)
async def test_notice_endpoint(
    endpoint_id: str, services: ServicesDependency, caller: CallerDependency
) -> TrialDocument:
    """Send a signed event of the type `rewind.test` to an endpoint now, whatever its status.

    It is sent once, and changes nothing; the result is the receiver's response. A confirmed e-mail
    address gets a mail, and the result is the mail server's reply.
    """
    result = await notice_endpoints.send_test_notice(services, caller, endpoint_id)
    return TrialDocument.model_validate(result)


@router.post(
    "/{endpoint_id}/disable",
    operation_id="disableNoticeEndpoint",
    responses=errors(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED),
)
def disable_notice_endpoint(
    endpoint_id: str,
    services: ServicesDependency,
    caller: CallerDependency,
    body: Annotated[Disabling, Body()] = Disabling(),  # noqa: B008  frozen
) -> NoticeEndpointDocument:
    """Disable an endpoint for notices, and delete those that were not sent to it yet."""
    endpoint = services.store.disable_notice_endpoint(
        endpoint_id, body.reason, of_account=caller.account_filter
    )
    return NoticeEndpointDocument.of(endpoint, now_ms())


@router.post(
    "/{endpoint_id}/enable",
    operation_id="enableNoticeEndpoint",
    responses=errors(NOT_FOUND, NOT_VALIDATED),
)
async def enable_notice_endpoint(
    endpoint_id: str, services: ServicesDependency, caller: CallerDependency
) -> NoticeEndpointDocument:
    """Verify the receiver again, and enable the endpoint if it passes.

    An e-mail address that is not confirmed gets another mail with a code, and the endpoint keeps
    its status.
    """
    endpoint = await notice_endpoints.enable_notice_endpoint(services, caller, endpoint_id)
    return NoticeEndpointDocument.of(endpoint, now_ms())


@router.post(
    "/{endpoint_id}/confirm",
    operation_id="confirmNoticeEndpoint",
    responses=errors(INVALID_REQUEST, NOT_FOUND, NOT_VALIDATED, MEDIA_TYPE_REFUSED),
)
async def confirm_notice_endpoint(
    endpoint_id: str,
    body: AddressConfirmation,
    services: ServicesDependency,
    caller: CallerDependency,
) -> NoticeEndpointDocument:
    """Confirm the e-mail address of an endpoint with the code sent there, and enable it."""
    endpoint = await mail_endpoints.confirm_address(services, caller, endpoint_id, body.code)
    return NoticeEndpointDocument.of(endpoint, now_ms())


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
