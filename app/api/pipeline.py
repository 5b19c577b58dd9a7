"""Routes of the data pipeline: how runs of its jobs ended."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from app.api.access import OperatorOnly
from app.api.doors import DoorsDependency
from app.api.models.documents import Listing
from app.api.models.pipeline import PipelineRunDocument, PipelineRunRequest
from app.api.openapi import refusals
from app.api.paging import Cursor, Limit
from app.api.problems import FORBIDDEN, INVALID_REQUEST, MEDIA_TYPE_REFUSED
from app.domain.pipeline import JOB, SUBJECT, SUBJECT_CHARS_MAX

router = APIRouter(prefix="/pipeline/runs", tags=["operations"], dependencies=[OperatorOnly])

_NEW: Final[dict[int | str, dict[str, Any]]] = {
    201: {"model": PipelineRunDocument, "description": "The run was not told of before."}
}


@router.post(
    "",
    operation_id="addPipelineRun",
    responses=_NEW | refusals(INVALID_REQUEST, FORBIDDEN, MEDIA_TYPE_REFUSED),
)
def add_run(
    body: PipelineRunRequest, response: Response, doors: DoorsDependency
) -> PipelineRunDocument:
    """Tell how a run of a job ended; the last fifty of each job and subject are kept.

    A run of the same job and subject that started at the same moment is the same, told again: it
    stays as it was told first.
    """
    run, is_new = doors.store.add_pipeline_run(body.run())
    if is_new:
        response.status_code = 201
    return PipelineRunDocument.of(run)


@router.get("", operation_id="listPipelineRuns", responses=refusals(INVALID_REQUEST, FORBIDDEN))
def list_runs(
    doors: DoorsDependency,
    job: Annotated[str | None, Query(pattern=JOB)] = None,
    subject: Annotated[str | None, Query(pattern=SUBJECT, max_length=SUBJECT_CHARS_MAX)] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Listing[PipelineRunDocument]:
    """List the last run of each job and subject, the latest first.

    Of one `job`, or of one `subject`; with both, all runs of these that are kept.
    """
    if job is not None and subject is not None:
        page = doors.store.pipeline_runs(job, subject, cursor, limit)
    else:
        page = doors.store.latest_pipeline_runs(job, subject, cursor, limit)
    items = [PipelineRunDocument.of(run) for run in page.items]
    return Listing(items=items, next_cursor=page.next_cursor)
