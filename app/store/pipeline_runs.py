"""The table of pipeline runs: how the last runs of each job ended. Locks what it writes alone."""

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, delete, func, insert, select

from app.domain.pipeline import RUNS_KEPT, PipelineRun, RunOutcome
from app.store.pages import Page, Position, decode_cursor, page_of
from app.store.tables import pipeline_runs

_run: Final = pipeline_runs.c


def add(connection: Connection, run: PipelineRun) -> tuple[PipelineRun, bool]:
    """The run as it is kept, and whether it is new; what is older than the last fifty goes.

    A run that was told of before, as one of the same job and subject that began at the same
    moment, stays as it was told first: who got no answer tells again.
    """
    theirs = _are_of(run.job, run.subject)
    same = select(pipeline_runs).where(theirs, _run.started_ms == run.started_ms).limit(1)
    if (row := connection.execute(same).first()) is not None:
        return _to_run(row), False
    connection.execute(insert(pipeline_runs).values(_to_row(run)))
    newest = select(_run.id).where(theirs).order_by(_run.id.desc())
    if (last_id := connection.scalar(newest.offset(RUNS_KEPT).limit(1))) is not None:
        connection.execute(delete(pipeline_runs).where(theirs, _run.id <= last_id))
    return run, True


def newest_of(
    connection: Connection, job: str, subject: str, cursor: str | None, limit: int
) -> Page[PipelineRun]:
    """A page of the runs of a job with a subject, the last first.

    Raises:
        InvalidCursor: see `decode_cursor`.
    """
    query = select(pipeline_runs).where(_are_of(job, subject))
    if cursor is not None:
        query = query.where(_run.id < decode_cursor(cursor).place)
    return _page(connection, query, limit)


def latest_of_each(
    connection: Connection, job: str | None, subject: str | None, cursor: str | None, limit: int
) -> Page[PipelineRun]:
    """A page of the last run of each job and subject, of one job or one subject, or of all.

    Raises:
        InvalidCursor: see `decode_cursor`.
    """
    # By the index alone, whose entries of one job and subject end with the last.
    last_id = func.max(_run.id)
    last = select(last_id.label("id")).group_by(_run.job, _run.subject)
    if job is not None:
        last = last.where(_run.job == job)
    if subject is not None:
        last = last.where(_run.subject == subject)
    if cursor is not None:
        last = last.having(last_id < decode_cursor(cursor).place)
    found = last.order_by(last_id.desc()).limit(limit + 1).subquery()
    return _page(connection, select(pipeline_runs).join(found, found.c.id == _run.id), limit)


def _are_of(job: str, subject: str) -> ColumnElement[bool]:
    return and_(_run.job == job, _run.subject == subject)


def _page(connection: Connection, query: Select[Any], limit: int) -> Page[PipelineRun]:
    rows = connection.execute(query.order_by(_run.id.desc()).limit(limit + 1)).all()
    return page_of(rows, limit, _to_run, lambda row: Position(row.id))


def _to_row(run: PipelineRun) -> dict[str, Any]:
    # As UTF-8 it is no longer than the request that brought it, which the column has room for;
    # escaped, a character may take twelve bytes.
    told = {"summary": dict(run.summary), "topics": {t: dict(n) for t, n in run.topics.items()}}
    return {
        "job": run.job,
        "subject": run.subject,
        "outcome": str(run.outcome),
        "summary": json.dumps(told, ensure_ascii=False, separators=(",", ":")),
        "started_ms": run.started_ms,
        "finished_ms": run.finished_ms,
    }


def _to_run(row: Row[Any]) -> PipelineRun:
    told = json.loads(row.summary)
    return PipelineRun(
        row.job,
        row.subject,
        RunOutcome(row.outcome),
        row.started_ms,
        row.finished_ms,
        told["summary"],
        told["topics"],
    )
