"""How the jobs of the data pipeline ended: the last run of each, and the runs before."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import DoorsDependency
from app.api.paging import Cursor
from app.console.addresses import address
from app.console.gate import OperatorDependency
from app.console.rendering import rendered
from app.domain.pipeline import SUBJECT_CHARS_MAX

PIPELINE: Final = "/console/log/pipeline"

router = APIRouter()

Name = Annotated[str, Query(max_length=SUBJECT_CHARS_MAX)]


@router.get("/log/pipeline")
async def pipeline_page(
    request: Request,
    doors: DoorsDependency,
    _viewer: OperatorDependency,
    job: Name = "",
    subject: Name = "",
    cursor: Cursor = None,
) -> Response:
    """Show the last run of each job, or all runs of one job on one subject."""
    if job and subject:
        page = await run_in_threadpool(doors.store.pipeline_runs, job, subject, cursor or None)
    else:
        page = await run_in_threadpool(
            doors.store.latest_pipeline_runs, job or None, subject or None, cursor or None
        )
    return await rendered(
        request,
        "log_pipeline.html",
        runs=page.items,
        is_history=bool(job and subject),
        job=job,
        subject=subject,
        runs_url=_url,
        following=page.next_cursor and _url(job, subject, page.next_cursor),
    )


def _url(job: str, subject: str, cursor: str = "") -> str:
    return address(PIPELINE, {"job": job, "subject": subject, "cursor": cursor})
