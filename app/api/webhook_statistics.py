"""Routes that tell how a webhook's receiver fares: the last hour, and what it missed."""

from fastapi import APIRouter

from app.api.access import CallerDependency
from app.api.doors import DoorsDependency, now_ms
from app.api.models.webhook_statistics import MissedDocument, StatisticsDocument
from app.api.openapi import refusals
from app.api.problems import NOT_FOUND
from app.domain.tallies import Span, last_hour_from_ms, summed

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


@router.get(
    "/{webhook_id}/statistics",
    operation_id="getWebhookStatistics",
    responses=refusals(NOT_FOUND),
)
def get_statistics(
    webhook_id: str, doors: DoorsDependency, caller: CallerDependency
) -> StatisticsDocument:
    """Tell how live deliveries went in the last hour, up to some seconds ago.

    What replays brought is not among them.
    """
    present_ms = now_ms()
    from_ms = last_hour_from_ms(present_ms)
    found = doors.store.tallies(webhook_id, Span.SETTLED, from_ms, of_account=caller.sees)
    return StatisticsDocument.of(summed(found, from_ms), present_ms)


@router.get("/{webhook_id}/missed", operation_id="listMissedHours", responses=refusals(NOT_FOUND))
def list_missed_hours(
    webhook_id: str, doors: DoorsDependency, caller: CallerDependency
) -> MissedDocument:
    """List the hours of event time whose events were not all delivered live, the latest first.

    As far back as a replay may begin, and whether replays have brought what was missed since.
    """
    present_ms = now_ms()
    from_ms = present_ms - doors.settings.history_ms
    hours = doors.store.missed_hours(webhook_id, from_ms, of_account=caller.sees)
    return MissedDocument.of(hours, present_ms)
