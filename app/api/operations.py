"""Routes for operators: health, metrics, processes and pipeline runs."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from app.api.admission import OperatorOnly
from app.api.models.documents import HealthDocument, Listing
from app.api.models.operations import (
    PipelineRunDocument,
    PipelineRunRequest,
    ProcessDocument,
    ProcessesDocument,
)
from app.api.openapi import ANY_ERROR, errors
from app.domain.pipeline import JOB, SUBJECT, SUBJECT_CHARS_MAX
from app.http.dependencies import Cursor, Limit, ServicesDependency
from app.http.problems import (
    FORBIDDEN,
    INVALID_REQUEST,
    MEDIA_TYPE_REFUSED,
    UNAVAILABLE,
    Problem,
)
from app.services.metrics import CONTENT_TYPE

router = APIRouter(tags=["operations"], responses=ANY_ERROR)

_NEW_RUN: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": PipelineRunDocument, "description": "The run is new."}
}


@router.get("/healthz", operation_id="getHealth")
async def get_health() -> HealthDocument:
    """Report that the process runs."""
    return HealthDocument()


@router.get("/readyz", operation_id="getReadiness", responses=errors(UNAVAILABLE))
async def get_readiness(services: ServicesDependency) -> HealthDocument:
    """Report whether the migrated database and the log answer, and the live path makes progress.

    A 503 names what does not. The live path is not ready while a live process of this data centre
    has read nothing from a partition for a minute, although the log has records.
    """
    missing = await services.readiness.missing()
    if missing:
        detail = " and ".join(missing)
        raise Problem(UNAVAILABLE, f"not ready: {detail}", members={"unavailable": missing})
    return HealthDocument()


@router.get(
    "/metrics",
    operation_id="getMetrics",
    response_class=PlainTextResponse,
    responses=errors(FORBIDDEN),
    dependencies=[OperatorOnly],
)
async def get_metrics(services: ServicesDependency) -> Response:
    """Return the metrics of this process, and current replay statistics, for Prometheus.

    It answers within about two seconds even if the database does not: see `rewind_database_up`.
    """
    statistics = await services.replay_statistics.read()
    return Response(services.metrics.exposition(statistics), media_type=CONTENT_TYPE)


@router.get(
    "/processes",
    operation_id="listProcesses",
    responses=errors(FORBIDDEN),
    dependencies=[OperatorOnly],
)
def list_processes(services: ServicesDependency) -> ProcessesDocument:
    """List the processes that share the database, by kind and name.

    A process that was stopped is not listed; one that died is, for a day.
    """
    items = [ProcessDocument.model_validate(process) for process in services.store.processes()]
    return ProcessesDocument(items=items)


@router.post(
    "/pipeline/runs",
    operation_id="addPipelineRun",
    responses=_NEW_RUN | errors(INVALID_REQUEST, FORBIDDEN, MEDIA_TYPE_REFUSED),
    dependencies=[OperatorOnly],
)
def add_run(
    body: PipelineRunRequest, response: Response, services: ServicesDependency
) -> PipelineRunDocument:
    """Report how a run of a job ended; the last fifty of each job and subject are kept.

    A report with the same job, subject and start time is a repetition, and changes nothing.
    """
    run, is_new = services.store.add_pipeline_run(body.run())
    if is_new:
        response.status_code = 201
    return PipelineRunDocument.model_validate(run)


@router.get(
    "/pipeline/runs",
    operation_id="listPipelineRuns",
    responses=errors(INVALID_REQUEST, FORBIDDEN),
    dependencies=[OperatorOnly],
)
def list_runs(
    services: ServicesDependency,
    job: Annotated[str | None, Query(pattern=JOB)] = None,
    subject: Annotated[str | None, Query(pattern=SUBJECT, max_length=SUBJECT_CHARS_MAX)] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[PipelineRunDocument]:
    """List the last run of each job and subject, the latest first.

    `job` or `subject` limits the list; with both, it has all runs that are kept.
    """
    if job is not None and subject is not None:
        page = services.store.pipeline_runs(job, subject, cursor, limit)
    else:
        page = services.store.latest_pipeline_runs(job, subject, cursor, limit)
    items = [PipelineRunDocument.model_validate(run) for run in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)
