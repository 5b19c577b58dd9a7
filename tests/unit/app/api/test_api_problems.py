import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from httpx import AsyncClient, Response

from app.config import Settings
from app.domain.model import NewReplay, Webhook, Window
from app.http.request_limits import DOCUMENT_BYTES_MAX
from app.store import Store
from tests.support.database.migrated import ReusedStore
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio


def problem(answer: Response, status: int) -> dict[str, object]:
    """The document of an answer that must be a problem of this status."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, object] = answer.json()
    assert document["status"] == status
    assert {"type", "title", "detail"} <= document.keys()
    return document


async def test_an_unknown_path_is_a_problem(client: AsyncClient) -> None:
    unknown_id = problem(await client.get("/webhooks/wh_none"), 404)
    for path in ("/", "/nothing", "/webhooks/", "/docs"):
        document = problem(await client.get(path), 404)
        # RFC 9457 section 3.1.3: the title of a type does not change.
        assert (document["type"], document["title"]) == (unknown_id["type"], unknown_id["title"])


async def test_a_wrong_method_is_a_problem_with_the_allowed_methods(client: AsyncClient) -> None:
    answer = await client.put("/webhooks/wh_1", json={})
    problem(answer, 405)
    assert answer.headers["allow"] == "DELETE, GET, PATCH"


async def test_invalid_json_is_a_problem_of_the_body(client: AsyncClient) -> None:
    headers = {"content-type": "application/json"}
    answer = await client.post("/webhooks", content=b'{"url": ', headers=headers)
    assert problem(answer, 400)["field"] == "body"
    assert problem(await client.post("/webhooks", json=[1]), 400)["allowed"] == "a JSON object"
    assert problem(await client.post("/webhooks", headers=headers), 400)["field"] == "body"
    for unreadable in (b"[" * 30_000, b'{"url": ' + b"1" * 5_000 + b"}", b'{"url": "\xff"}'):
        document = problem(await client.post("/webhooks", content=unreadable, headers=headers), 400)
        assert document["type"] == "urn:rewind:problem:invalid-request"
        assert document["field"] == "body"


async def test_an_unknown_member_is_named_without_its_value(client: AsyncClient) -> None:
    body = {"url": "https://example.com/", "sekret": "whsec_s3cr3t", "x" * 10_000: 1}
    answer = await client.post("/webhooks", json=body)
    errors = problem(answer, 400)["errors"]
    assert errors == [
        {"field": name, "value": None, "allowed": "a known field"} for name in ("sekret", "x" * 200)
    ]
    assert "s3cr3t" not in answer.text


@pytest.mark.parametrize("path", ["/webhooks", "/replays", "/events"])
@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", None])
async def test_an_unsupported_media_type_is_rejected(
    client: AsyncClient, path: str, media_type: str | None
) -> None:
    headers = {} if media_type is None else {"content-type": media_type}
    answer = await client.post(path, content=b"{}", headers=headers)
    document = problem(answer, 415)
    assert document["value"] == (media_type or "")
    assert "application/json" in answer.headers["accept"]


async def test_a_media_type_may_have_parameters(client: AsyncClient, webhook: Webhook) -> None:
    answer = await client.patch(
        f"/webhooks/{webhook.id}",
        content=b"{}",
        headers={"content-type": "Application/JSON; charset=utf-8"},
    )
    assert answer.status_code == 200


async def test_a_content_length_above_the_limit_is_rejected(client: AsyncClient) -> None:
    content = json.dumps({"url": "x" * DOCUMENT_BYTES_MAX}).encode()
    answer = await client.post(
        "/webhooks", content=content, headers={"content-type": "application/json"}
    )
    assert problem(answer, 413)["value"] == f"{len(content)} bytes"


async def test_reading_stops_at_the_limit(client: AsyncClient, settings: Settings) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 2**20
            yield b" " * 2**20

    answer = await client.post(
        "/events", content=endless(), headers={"content-type": "application/json"}
    )
    document = problem(answer, 413)
    assert str(settings.request_bytes_max) in str(document["allowed"])
    assert sent == settings.request_bytes_max + 2**20


async def test_a_long_value_is_truncated(client: AsyncClient) -> None:
    answer = await client.post("/replays", json={"webhookId": "w", "from": "x" * 9_000, "to": "y"})
    assert len(answer.content) < 4_000


async def test_a_surrogate_in_a_value_does_not_break_the_response(client: AsyncClient) -> None:
    answer = await client.post(
        "/webhooks",
        content=b'{"url": "https://example.com/\\ud800"}',
        headers={"content-type": "application/json"},
    )
    problem(answer, 400)


async def test_an_unexpected_error_is_a_problem_without_its_cause(
    application: FastAPI,
    operator: Issued,
    store: Store,
    webhook: Webhook,
    reused_store: ReusedStore,
) -> None:
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    _set_state(reused_store.file, "HAUNTED")
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {operator[1]}"}
    async with AsyncClient(transport=transport, base_url="http://api.test") as client:
        client.headers.update(headers)
        answer = await client.get(f"/replays/{replay.id}")
        _set_state(reused_store.file, "OPEN")
        metrics = (await client.get("/metrics")).text

    assert "HAUNTED" not in str(problem(answer, 500))
    series = (
        'rewind_http_requests_total{method="GET",route="/replays/{replay_id}",status="500"} 1.0'
    )
    assert series in metrics


def _set_state(file: Path, state: str) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE replays SET state = ?", (state,))
        database.commit()


async def test_a_database_that_is_down_is_named_without_its_cause(
    client: AsyncClient, reused_store: ReusedStore
) -> None:
    with closing(sqlite3.connect(reused_store.file)) as database:
        database.execute("DROP TABLE replay_failures")
        database.execute("DROP TABLE replays")
        database.execute("DROP TABLE webhooks")
        database.commit()
    document = problem(await client.get("/webhooks/wh_1"), 503)
    assert document["unavailable"] == ["database"]
    assert "table" not in str(document)
