import json
from typing import Any

import pytest
from httpx import AsyncClient

from app.domain.pipeline import SUBJECT_CHARS_MAX, SUMMARY_MAX, TEXT_CHARS_MAX, TOPICS_MAX
from app.http.request_limits import DOCUMENT_BYTES_MAX
from app.store import Store

pytestmark = pytest.mark.anyio

RUN: dict[str, Any] = {
    "job": "load",
    "subject": "/tables/records of ü",
    "outcome": "done",
    "summary": {"records": 3, "isWhole": True, "error": None, "days": "2026-11-21"},
    "topics": {"events": {"records": 3, "end": 4_711}},
    "startedAt": "2026-11-22T01:15:00.000Z",
    "finishedAt": "2026-11-22T01:15:41.000Z",
}
PATH = "/pipeline/runs"


async def test_a_run_is_reported_and_listed(client: AsyncClient) -> None:
    answer = await client.post(PATH, json=RUN)
    assert (answer.status_code, answer.json()) == (201, RUN)
    again = await client.post(PATH, json=RUN | {"outcome": "failed"})
    assert (again.status_code, again.json()) == (200, RUN)
    assert (await client.get(PATH)).json() == {"items": [RUN], "nextCursor": None}


async def test_the_last_run_of_each_job_or_all_runs_of_one_are_listed(client: AsyncClient) -> None:
    later = RUN | {"startedAt": "2026-11-22T01:15:01.000Z"}
    audit = RUN | {"job": "audit", "summary": {}, "topics": {}}
    for run in (RUN, audit, later):
        await client.post(PATH, json=run)
    for params, found in (
        ({}, [later, audit]),
        ({"job": "load"}, [later]),
        ({"subject": RUN["subject"]}, [later, audit]),
        ({"job": "load", "subject": RUN["subject"]}, [later, RUN]),
        ({"subject": "/tables/none"}, []),
    ):
        answer = await client.get(PATH, params=params)
        assert answer.json()["items"] == found, params
    first = (await client.get(PATH, params={"limit": 1})).json()
    second = await client.get(PATH, params={"limit": 1, "cursor": first["nextCursor"]})
    assert (first["items"], second.json()) == ([later], {"items": [audit], "nextCursor": None})


async def test_missing_counts_are_empty(client: AsyncClient) -> None:
    least = {name: RUN[name] for name in ("job", "subject", "outcome", "startedAt", "finishedAt")}
    answer = await client.post(PATH, json=least)
    assert (answer.status_code, answer.json()) == (201, least | {"summary": {}, "topics": {}})


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"job": "Load"}, "job"),
        ({"job": "a" * 33}, "job"),
        ({"subject": ""}, "subject"),
        ({"subject": " /t"}, "subject"),
        ({"subject": "/t "}, "subject"),
        ({"subject": "/t\n"}, "subject"),
        ({"subject": "/t\0u"}, "subject"),
        ({"subject": "x" * (SUBJECT_CHARS_MAX + 1)}, "subject"),
        ({"outcome": "fine"}, "outcome"),
        ({"summary": {"": 1}}, "summary"),
        ({"summary": {"a b": 1}}, "summary"),
        ({"summary": {"a": 0.5}}, "summary.a"),
        ({"summary": {"a": 2**63}}, "summary.a"),
        ({"summary": {"a": {"b": 1}}}, "summary.a"),
        ({"summary": {"a": "x" * (TEXT_CHARS_MAX + 1)}}, "summary.a"),
        ({"summary": {f"a{number}": 1 for number in range(SUMMARY_MAX + 1)}}, "summary"),
        ({"topics": {"a topic": {"records": 1}}}, "topics"),
        ({"topics": {"a": {"records": -1}}}, "topics.a.records"),
        ({"topics": {"a": {"records": "1"}}}, "topics.a.records"),
        ({"topics": {"a": {f"a{number}": 1 for number in range(11)}}}, "topics.a"),
        ({"topics": {f"t{number}": {} for number in range(TOPICS_MAX + 1)}}, "topics"),
        ({"startedAt": 1_790_000_000_000}, "startedAt"),
        ({"finishedAt": "2026-11-22T01:14:59.999Z"}, "finishedAt"),
        ({"finishedAt": None}, "finishedAt"),
        ({"state": "done"}, "state"),
    ],
)
async def test_an_invalid_run_is_rejected_by_field(
    client: AsyncClient, store: Store, members: dict[str, Any], field: str
) -> None:
    answer = await client.post(PATH, json=RUN | members)
    assert answer.status_code == 400, answer.text
    problem = answer.json()
    assert problem["field"].startswith(field)
    assert problem["allowed"]
    assert store.latest_pipeline_runs().items == ()


async def test_invalid_filters_are_rejected(client: AsyncClient) -> None:
    for params in ({"job": "No Job"}, {"subject": " x"}, {"limit": "0"}, {"cursor": "x"}):
        answer = await client.get(PATH, params=params)
        assert (answer.status_code, answer.json()["field"]) == (400, next(iter(params)))


async def test_the_largest_run_is_stored(client: AsyncClient) -> None:
    run = RUN | {
        "summary": {f"a{number:02}": "\x01" * TEXT_CHARS_MAX for number in range(21)},
        "topics": {},
    }
    length = len(json.dumps(run).encode())
    assert 0.9 * DOCUMENT_BYTES_MAX < length < DOCUMENT_BYTES_MAX
    assert (await client.post(PATH, json=run)).json() == run
