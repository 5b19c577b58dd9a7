import asyncio
import logging
import re
import socket
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx import AsyncClient

from app.api.application import create_app
from app.config import Settings
from app.domain.model import NewReplay, Webhook, Window
from app.domain.processes import STALLED_PARTITIONS, ProcessKind
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.services.health import Readiness, ReplayStatistics
from app.services.metrics import ApiMetrics
from app.services.services import Services
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from logbroker.json_log import JsonLines
from tests.support.database.migrated import ReusedStore
from tests.support.http.api_clients import client_of

pytestmark = pytest.mark.anyio


async def test_health_needs_no_dependencies(client: AsyncClient) -> None:
    answer = await client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_readiness_names_the_log_that_is_down(client: AsyncClient) -> None:
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["unavailable"] == ["log"]


@pytest.mark.parametrize(("origin", "names"), [("local", ["log", "live path"]), ("west", ["log"])])
async def test_readiness_names_a_live_path_that_makes_no_progress(
    client: AsyncClient, store: Store, origin: str, names: list[str]
) -> None:
    details = {STALLED_PARTITIONS: 2}
    store.record_process_heartbeat(ProcessKind.LIVE, "host:1", origin, 0, details)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["unavailable"] == names


async def test_readiness_names_the_database_that_is_not_migrated(
    settings: Settings, tmp_path: Path
) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/empty.db")
    history = LogHistory(settings.bootstrap_servers, timeout_s=0.2)
    publisher = EventPublisher(settings.bootstrap_servers, origin="here", server="test")
    guard = Guard()
    application = create_app(
        Services.of(settings, store, publisher, history, guard, WebhookSender(guard), ApiMetrics())
    )
    async with client_of(application, None) as client:
        answer = await client.get("/readyz")
    store.close()
    assert answer.json()["unavailable"] == ["database", "log"]


async def test_requests_are_counted_by_route_not_by_path(client: AsyncClient) -> None:
    for path in ("/webhooks/wh_1", "/webhooks/wh_2", "/nothing/1", "/nothing/2"):
        await client.get(path)
    await client.request("BREW", "/webhooks")

    metrics = await client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    for series in (
        'method="GET",route="/webhooks/{webhook_id}",status="404"} 2.0',
        'method="GET",route="unmatched",status="404"} 2.0',
        'method="unmatched",route="/webhooks",status="405"} 1.0',
    ):
        assert series in metrics.text


async def test_metrics_have_replay_statistics(
    client: AsyncClient, store: Store, webhook: Webhook
) -> None:
    store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    metrics = (await client.get("/metrics")).text
    for line in (
        "rewind_database_up 1.0",
        'rewind_replays{state="OPEN"} 1.0',
        'rewind_replays{state="FAILED"} 0.0',
        'rewind_replays_late_heartbeats{origin="local"} 0.0',
    ):
        assert f"\n{line}\n" in metrics
    pattern = r"^rewind_replays_oldest_open_seconds(\S+) (\S+)$"
    oldest = {labels: float(value) for labels, value in re.findall(pattern, metrics, re.MULTILINE)}
    # What was asked for at no API in particular waits for workers of all data centres.
    assert oldest.keys() == {'{origin="local"}', '{origin=""}'}
    assert oldest['{origin=""}'] >= 0


async def test_metrics_work_while_the_database_is_down(
    client: AsyncClient, reused_store: ReusedStore
) -> None:
    assert (await client.get("/metrics")).status_code == 200
    reused_store.take_database_away()
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    assert "\nrewind_database_up 0.0\n" in answer.text
    assert "rewind_replays" not in answer.text
    assert 'route="/metrics",status="200"} 1.0' in answer.text


async def test_metrics_do_not_wait_for_a_database_that_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        port = silent.getsockname()[1]
        with closing(Store.open(f"mysql+pymysql://rewind@127.0.0.1:{port}/rewind")) as store:
            watch = ReplayStatistics(store, "here")
            assert [await watch.read(), await watch.read()] == [None, None]
            # The second did not ask again, so the first had not waited for the end.
            asked, _ = silent.accept()
            silent.settimeout(0)
            with pytest.raises(BlockingIOError):
                silent.accept()
            asked.close()


async def test_concurrent_probes_share_one_check(settings: Settings) -> None:
    history = LogHistory(settings.bootstrap_servers, timeout_s=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        port = silent.getsockname()[1]
        with closing(Store.open(f"mysql+pymysql://rewind@127.0.0.1:{port}/rewind")) as store:
            readiness = Readiness(store, history)
            probes = [asyncio.create_task(readiness.missing()) for _ in range(10)]
            asked, _ = await asyncio.to_thread(silent.accept)
            silent.settimeout(0)
            with pytest.raises(BlockingIOError):
                silent.accept()
            asked.close()
            assert await asyncio.gather(*probes) == [("database", "log")] * 10


async def test_long_paths_are_truncated_in_logs(
    anonymous: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rewind"):
        await anonymous.delete("/webhooks/" + "x" * 60_000)
    records = [record for record in caplog.records if record.name.startswith("rewind.")]
    lines = [JsonLines().format(record) for record in records]
    assert len(lines) == 2
    assert max(map(len, lines)) < 1_000


async def test_a_request_is_one_line_without_its_query(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rewind.api"):
        await client.get("/webhooks/a%0Ab?token=hunter2")
    (record,) = (record for record in caplog.records if record.name == "rewind.api")
    line = JsonLines().format(record)
    assert "\n" not in line
    assert '"status": 404' in line
    assert '"method": "GET"' in line
    assert "hunter2" not in line


async def test_the_openapi_document_has_an_example_for_every_route(
    client: AsyncClient, application: FastAPI
) -> None:
    document = (await client.get("/openapi.json")).json()

    assert document["info"]["title"] == "Rewind"
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    assert all(each.isidentifier() and each[0].islower() and "_" not in each for each in ids)
    assert all(operation["tags"] for operation in operations)
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    for name in ("WebhookRequest", "WebhookChange", "ReplayRequest", "Event", "ReplayDocument"):
        assert schemas[name]["examples"]
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas


def _references(value: object) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if "$ref" in value else []
        return found + [each for member in value.values() for each in _references(member)]
    if isinstance(value, list):
        return [each for member in value for each in _references(member)]
    return []


async def test_no_request_but_its_own_builds_the_openapi_document(
    application: FastAPI, anonymous: AsyncClient, client: AsyncClient
) -> None:
    built_on: list[threading.Thread] = []

    def build() -> dict[str, Any]:
        built_on.append(threading.current_thread())
        return {"openapi": "3.1.0"}

    application.openapi = build  # type: ignore[method-assign]
    assert (await anonymous.post("/webhooks", json={})).status_code == 401
    assert (await client.post("/healthz")).headers["allow"] == "GET"
    assert built_on == []
    for _ in range(2):
        assert (await anonymous.get("/openapi.json")).json() == {"openapi": "3.1.0"}
    # On a thread, so that it stops no other request, and once.
    assert len(built_on) == 1
    assert built_on[0] is not threading.main_thread()
