"""The route of rule tests: which rules of a webhook a sample event matches."""

from fastapi import APIRouter

from app.api.admission import CallerDependency
from app.api.models.rules import SampleMatchDocument
from app.api.openapi import ANY_ERROR, errors
from app.http.dependencies import ServicesDependency
from app.http.problems import INVALID_REQUEST, MEDIA_TYPE_REFUSED, NOT_FOUND
from app.http.sample_events import SampleEventRequest
from app.services.sample_events import match_sample
from app.services.services import now_ms

# Not below `/rules`, where every name may be that of a rule.
router = APIRouter(
    prefix="/webhooks/{webhook_id}/rule-matches", tags=["webhooks"], responses=ANY_ERROR
)


@router.post(
    "", operation_id="matchRules", responses=errors(INVALID_REQUEST, NOT_FOUND, MEDIA_TYPE_REFUSED)
)
def match_rules(
    webhook_id: str,
    body: SampleEventRequest,
    services: ServicesDependency,
    caller: CallerDependency,
) -> SampleMatchDocument:
    """Say which rules of a webhook a sample event matches. Nothing is published or sent."""
    found = match_sample(services, caller, webhook_id, body.sample(now_ms()))
    return SampleMatchDocument.model_validate(found)
