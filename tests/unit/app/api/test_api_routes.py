"""Checks of every route in the OpenAPI document."""

import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from httpx import AsyncClient

from app.api.admission import OPEN_PATHS
from app.api.audit import CHANGING
from app.config import Settings
from app.domain.grants import Grant
from app.domain.model import NewReplay, Webhook, Window
from app.domain.rules import Rule
from app.store import Store
from logbroker.json_log import JsonLines
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio

OPERATORS_ALONE = {
    "publishEvents",
    "putGrant",
    "deleteGrant",
    "getMetrics",
    "listProcesses",
    "listRestorations",
    "putRestoration",
    "putRestorationMissing",
    "addPipelineRun",
    "listPipelineRuns",
    "listBrokers",
    "listTopics",
    "getTopic",
    "listMessages",
    "listGroups",
    "getGroup",
    "listLogSamples",
}

BODIES: dict[str, Any] = {
    "updateWebhook": {"description": "new"},
    "updateNoticeEndpoint": {"description": "new"},
    "confirmNoticeEndpoint": {"code": "unknown"},
    "putRule": {"eventTypes": ["*"]},
    "matchRules": {"type": "a.b", "data": {}},
    "resendDeliveries": {"deliveryIds": ["dlv_unknown"]},
}
"""What a request must bring to be refused for its id and nothing else."""


class Operation(NamedTuple):
    id: str
    method: str
    path: str
    described: dict[str, Any]

    def on(self, webhook_id: str, replay_id: str, account_id: str = "acc_1") -> str:
        """Its path with these ids."""
        names = {"webhook_id": webhook_id, "replay_id": replay_id, "account_id": account_id}
        names |= {"name": "vip", "topic": "events", "delivery_id": "dlv_unknown"}
        # An invalid event id: a look-up would wait for the log.
        names |= {"endpoint_id": "nte_unknown", "event_id": "a b"}
        return re.sub(r"{(\w+)}", lambda match: names[match[1]], self.path)

    @property
    def query(self) -> dict[str, str]:
        """The dates that Twitter's way wants; nothing else has to be in a query."""
        now = datetime.now(UTC)
        before = now - timedelta(hours=1)
        dates = {"from_date": f"{before:%Y%m%d%H%M}", "to_date": f"{now:%Y%m%d%H%M}"}
        wanted = {parameter["name"] for parameter in self.described.get("parameters", ())}
        return {name: value for name, value in dates.items() if name in wanted}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Allow a request without a key for each route."""
    return settings.model_copy(update={"unauthorized_requests_per_minute": 1_000})


@pytest.fixture
def operations(application: FastAPI) -> list[Operation]:
    return list(_operations(application.openapi()))


def _operations(document: dict[str, Any]) -> Iterator[Operation]:
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            yield Operation(described["operationId"], method.upper(), path, described)


async def test_every_route_is_described(application: FastAPI, operations: list[Operation]) -> None:
    """Or the gate's answers and the audit's names would be missing for it."""
    described = {(operation.method, operation.path) for operation in operations}
    served = {
        (method, route.path_format)
        for route in application.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert described == served
    assert len(described) > 20


async def test_each_route_needs_a_key(anonymous: AsyncClient, operations: list[Operation]) -> None:
    for operation in operations:
        answer = await anonymous.request(operation.method, operation.on("wh_1", "rpl_1"))
        is_open = operation.path in OPEN_PATHS
        assert (answer.status_code == 401) != is_open, operation
        if not is_open:
            assert answer.headers["www-authenticate"].startswith("Bearer"), operation
        assert operation.described["security"] == ([] if is_open else [{"apiKey": []}])
        assert ({"401", "429"} <= operation.described["responses"].keys()) != is_open, operation


async def test_each_operator_route_rejects_developers(
    developers_client: AsyncClient, operations: list[Operation]
) -> None:
    forbidden = set()
    for operation in operations:
        path = operation.on("wh_1", "rpl_1")
        answer = await developers_client.request(operation.method, path)
        if answer.status_code == 403:
            forbidden.add(operation.id)
            assert "403" in operation.described["responses"], operation
    assert forbidden == OPERATORS_ALONE


async def test_each_route_with_an_id_hides_other_accounts(
    developers_client: AsyncClient,
    others_client: AsyncClient,
    store: Store,
    webhook: Webhook,
    operations: list[Operation],
) -> None:
    store.put_rule(Rule(webhook.id, "vip", ("*",)))
    store.put_grant(Grant(webhook.account_id, "vip", ("*",)))
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    asked = [
        operation
        for operation in operations
        if "_id}" in operation.path and operation.id not in {*OPERATORS_ALONE, "getEvent"}
    ]
    for operation in asked:
        answers = [
            await others_client.request(
                operation.method,
                operation.on(*ids),
                params=operation.query,
                json=BODIES.get(operation.id),
            )
            for ids in (
                (webhook.id, replay.id, webhook.account_id),
                ("wh_none", "rpl_none", "acc_none"),
            )
        ]
        assert [answer.status_code for answer in answers] == [404, 404], operation
        theirs, missing = (
            re.sub(r"(wh|rpl|acc)_\w+", "ID", json.dumps(answer.json())) for answer in answers
        )
        assert theirs == missing, operation
    assert len(asked) > 15
    # None of it did anything.
    assert store.webhook(webhook.id) == webhook
    assert store.rule(webhook.id, "vip").event_types == ("*",)
    assert store.replay(replay.id) == replay
    assert (await developers_client.get(f"/webhooks/{webhook.id}")).status_code == 200


async def test_lists_have_only_items_of_the_account(
    client: AsyncClient,
    developers_client: AsyncClient,
    others_client: AsyncClient,
    developer: Issued,
    other_developer: Issued,
    store: Store,
    webhook: Webhook,
) -> None:
    store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    for path in ("/webhooks", "/replays"):
        mine, theirs = developer[0].account.id, other_developer[0].account.id
        found = {
            "all": await client.get(path),
            "mine, to the operator": await client.get(path, params={"accountId": mine}),
            "theirs, to the operator": await client.get(path, params={"accountId": theirs}),
            "mine": await developers_client.get(path),
            "mine, by name": await developers_client.get(path, params={"accountId": mine}),
            "theirs": await others_client.get(path),
        }
        counts = {name: len(answer.json()["items"]) for name, answer in found.items()}
        assert counts == {
            "all": 1,
            "mine, to the operator": 1,
            "theirs, to the operator": 0,
            "mine": 1,
            "mine, by name": 1,
            "theirs": 0,
        }, path
        assert (await others_client.get(path, params={"accountId": mine})).status_code == 403


async def test_each_change_is_one_audit_line_whether_done_or_rejected(
    anonymous: AsyncClient,
    developers_client: AsyncClient,
    developer: Issued,
    operations: list[Operation],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "rewind.audit")
    key, token = developer
    for operation in operations:
        path = operation.on("wh_1", "rpl_1")
        for client, account_id in ((developers_client, key.account.id), (anonymous, None)):
            caplog.clear()
            answer = await client.request(operation.method, path, json={"secret": "hunter2"})
            lines = [
                json.loads(JsonLines().format(record))
                for record in caplog.records
                if record.name == "rewind.audit"
            ]
            if operation.method not in CHANGING:
                assert lines == [], operation
                continue
            (line,) = lines
            assert line["action"] == operation.id
            assert line["status"] == answer.status_code
            assert line["account_id"] == account_id
            assert line["key_id"] == (key.id if account_id else None)
            assert line["target"] == _target(path), operation
            assert line["client"] == "127.0.0.1"
            assert "hunter2" not in str(line)
            assert token not in str(line)


NAMED = ("wh_1", "rpl_1", "acc_1", "vip", "dlv_unknown", "nte_unknown")


def _target(path: str) -> str | None:
    named = [part for part in path.split("/") if part in NAMED]
    return "/".join(named) or None


async def test_an_unknown_path_is_not_audited(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rewind.audit")
    await client.post("/nothing")
    await client.delete("/webhooks")
    assert [record for record in caplog.records if record.name == "rewind.audit"] == []
