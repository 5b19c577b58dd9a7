"""Routes for those who run the service: is it up, can it work, what has it done."""

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from app.api.access import OperatorOnly
from app.api.doors import DoorsDependency
from app.api.metrics import CONTENT_TYPE
from app.api.models.documents import Health
from app.api.openapi import refusals
from app.api.problems import FORBIDDEN, UNAVAILABLE, Problem

router = APIRouter(tags=["operations"])


@router.get("/healthz", operation_id="getHealth")
async def get_health() -> Health:
    """Say that the process runs."""
    return Health()


@router.get("/readyz", operation_id="getReadiness", responses=refusals(UNAVAILABLE))
async def get_readiness(doors: DoorsDependency) -> Health:
    """Say whether the database, migrated, and the log answer; with 503 which of them does not."""
    missing = await doors.readiness.missing()
    if missing:
        detail = " and ".join(missing)
        raise Problem(UNAVAILABLE, f"not ready: {detail}", members={"unavailable": missing})
    return Health()


@router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=PlainTextResponse,
    responses=refusals(FORBIDDEN),
    dependencies=[OperatorOnly],
)
async def get_metrics(doors: DoorsDependency) -> Response:
    """Give what was counted, and the replays as they are, for Prometheus.

    It answers within two seconds or so also while the database does not: see
    `rewind_database_up`.
    """
    return Response(doors.metrics.exposition(await doors.jobs.read()), media_type=CONTENT_TYPE)
