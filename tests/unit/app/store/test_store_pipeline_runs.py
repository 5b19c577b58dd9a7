import json
from dataclasses import replace

import pytest

from app.domain.pipeline import RUNS_KEPT, PipelineRun, RunOutcome
from app.store import InvalidCursor, Store

LOAD = PipelineRun("load", "/tables/records", RunOutcome.DONE, 1_000, 2_000)


def runs(*starts: int, of: PipelineRun = LOAD) -> list[PipelineRun]:
    return [replace(of, started_ms=start, finished_ms=start + 1) for start in starts]


def add_all(store: Store, *reported: PipelineRun) -> None:
    for run in reported:
        store.add_pipeline_run(run)


def test_a_run_is_stored_as_reported(store: Store) -> None:
    run = replace(
        LOAD,
        outcome=RunOutcome.REFUSED,
        summary={"records": 2**63 - 1, "isWhole": False, "error": 'ü"\n\0😀', "version": None},
        topics={"events": {"records": 3, "end": 4_711}},
    )
    assert store.add_pipeline_run(run) == (run, True)
    assert store.latest_pipeline_runs().items == (run,)
    assert store.pipeline_runs("load", "/tables/records").items == (run,)


def test_a_run_of_64_kib_fits_into_its_column(store: Store) -> None:
    run = replace(LOAD, summary={f"a{number}": "\x01" * 500 for number in range(21)})
    assert len(json.dumps(run.summary)) > 63_000
    store.add_pipeline_run(run)
    assert store.latest_pipeline_runs().items == (run,)


def test_a_repeated_report_is_stored_once(store: Store) -> None:
    first = replace(LOAD, summary={"records": 1})
    store.add_pipeline_run(first)
    assert store.add_pipeline_run(replace(LOAD, summary={"records": 2})) == (first, False)
    others = (replace(LOAD, subject="/tables/other"), replace(LOAD, job="audit"), *runs(1_001))
    assert [store.add_pipeline_run(other) for other in others] == [
        (other, True) for other in others
    ]
    assert store.pipeline_runs("load", "/tables/records").items == (*runs(1_001), first)


def test_the_last_fifty_runs_of_each_job_and_subject_are_kept(store: Store) -> None:
    other = replace(LOAD, subject="/tables/records2")
    audit = replace(LOAD, job="audit")
    add_all(store, other, audit, *runs(*range(RUNS_KEPT)))
    assert len(store.pipeline_runs("load", LOAD.subject, limit=200).items) == RUNS_KEPT
    add_all(store, *runs(RUNS_KEPT, RUNS_KEPT + 1))
    kept = store.pipeline_runs("load", LOAD.subject, limit=200)
    assert kept.items == tuple(runs(*range(RUNS_KEPT + 1, 1, -1)))
    assert kept.next_cursor is None
    assert store.pipeline_runs("load", other.subject).items == (other,)
    assert store.pipeline_runs("audit", LOAD.subject).items == (audit,)


def test_the_latest_run_of_each_job_and_subject_is_listed(store: Store) -> None:
    audit = replace(LOAD, job="audit")
    other = replace(LOAD, subject="/tables/other")
    add_all(store, *runs(1, of=audit), *runs(1, 2), *runs(1, of=other), *runs(2, of=audit))
    last_load, last_audit, last_other = runs(2)[0], runs(2, of=audit)[0], runs(1, of=other)[0]
    assert store.latest_pipeline_runs().items == (last_audit, last_other, last_load)
    assert store.latest_pipeline_runs(job="load").items == (last_other, last_load)
    assert store.latest_pipeline_runs(subject=LOAD.subject).items == (last_audit, last_load)
    assert store.latest_pipeline_runs(job="compact").items == ()


def test_subjects_are_compared_byte_by_byte(store: Store) -> None:
    upper = replace(LOAD, subject="/TABLES/records")
    add_all(store, LOAD, upper)
    assert store.latest_pipeline_runs().items == (upper, LOAD)
    assert store.pipeline_runs("load", "/TABLES/records").items == (upper,)


def test_runs_are_paginated(store: Store) -> None:
    add_all(store, *runs(1, 2, 3))
    first = store.pipeline_runs("load", LOAD.subject, limit=2)
    second = store.pipeline_runs("load", LOAD.subject, first.next_cursor, 2)
    assert (first.items + second.items, second.next_cursor) == (tuple(runs(3, 2, 1)), None)

    others = [replace(LOAD, subject=f"/tables/{number}") for number in range(3)]
    add_all(store, *others)
    first = store.latest_pipeline_runs(limit=3)
    second = store.latest_pipeline_runs(cursor=first.next_cursor, limit=3)
    assert (first.items + second.items, second.next_cursor) == (
        (*reversed(others), runs(3)[0]),
        None,
    )
    for wrong in ("x", "", "NOT.a"):
        with pytest.raises(InvalidCursor):
            store.latest_pipeline_runs(cursor=wrong)
        with pytest.raises(InvalidCursor):
            store.pipeline_runs("load", LOAD.subject, wrong)
