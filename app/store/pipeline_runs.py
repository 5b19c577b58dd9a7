"""The table of pipeline runs: the results of each job's last runs."""

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, insert, select

from app.domain.pipeline import RUNS_KEPT, PipelineRun, RunOutcome
from app.store.pages import PAGE_LIMIT, Page, PageCursor, decode_cursor, page_of
from app.store.tables import pipeline_runs

_run: Final = pipeline_runs.c


def add_pipeline_run(connection: Connection, run: PipelineRun) -> tuple[PipelineRun, bool]:
    """Store the run and return it with True; keeps the last `RUNS_KEPT` of its job and subject.

    A run with the same job, subject and start is a repeated report: it returns the stored run with
    False. Locks only the rows that it writes.
    """
    is_same_job = _is_of(run.job, run.subject)
    same = select(pipeline_runs).where(is_same_job, _run.started_ms == run.started_ms).limit(1)
    if (row := connection.execute(same).first()) is not None:
        return _to_run(row), False
    connection.execute(insert(pipeline_runs).values(_to_row(run)))
    newest = select(_run.id).where(is_same_job).order_by(_run.id.desc())
    if (last_id := connection.scalar(newest.offset(RUNS_KEPT).limit(1))) is not None:
        connection.execute(delete(pipeline_runs).where(is_same_job, _run.id <= last_id))
    return run, True


def list_pipeline_runs(
    connection: Connection,
    job: str,
    subject: str,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
) -> Page[PipelineRun]:
    """A page of the runs of a job with a subject, latest first.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    query = select(pipeline_runs).where(_is_of(job, subject))
    if cursor is not None:
        query = query.where(_run.id < decode_cursor(cursor).value)
    return _page(connection, query, limit)


def latest_pipeline_runs(
    connection: Connection,
    job: str | None = None,
    subject: str | None = None,
    cursor: str | None = None,
    limit: int = PAGE_LIMIT,
) -> Page[PipelineRun]:
    """A page of the last run of each job and subject; None means any job, or any subject.

    Raises:
        InvalidCursor: see `pages.decode_cursor`.
    """
    # Uses the index only, in which the entries of one job and subject end with the last run.
    last_id = func.max(_run.id)
    last = select(last_id.label("id")).group_by(_run.job, _run.subject)
    if job is not None:
        last = last.where(_run.job == job)
    if subject is not None:
        last = last.where(_run.subject == subject)
    if cursor is not None:
        last = last.having(last_id < decode_cursor(cursor).value)
    found = last.order_by(last_id.desc()).limit(limit + 1).subquery()
    return _page(connection, select(pipeline_runs).join(found, found.c.id == _run.id), limit)


def _is_of(job: str, subject: str) -> ColumnElement[bool]:
    return and_(_run.job == job, _run.subject == subject)


def _page(connection: Connection, query: Select[Any], limit: int) -> Page[PipelineRun]:
    rows = connection.execute(query.order_by(_run.id.desc()).limit(limit + 1)).all()
    return page_of(rows, limit, _to_run, lambda row: PageCursor(row.id))


def _to_row(run: PipelineRun) -> dict[str, Any]:
    # As UTF-8 it is no longer than its request, for which the column has room; escaped, a character
    # may take twelve bytes.
    value = {"summary": dict(run.summary), "topics": {t: dict(n) for t, n in run.topics.items()}}
    return {
        "job": run.job,
        "subject": run.subject,
        "outcome": str(run.outcome),
        "summary": json.dumps(value, ensure_ascii=False, separators=(",", ":")),
        "started_ms": run.started_ms,
        "finished_ms": run.finished_ms,
    }


def _to_run(row: Row[Any]) -> PipelineRun:
    value = json.loads(row.summary)
    return PipelineRun(
        row.job,
        row.subject,
        RunOutcome(row.outcome),
        row.started_ms,
        row.finished_ms,
        value["summary"],
        value["topics"],
    )
