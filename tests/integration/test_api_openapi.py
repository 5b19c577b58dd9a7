"""Schemathesis tests the real server with its OpenAPI document."""

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.domain.accounts import Scope
from app.domain.windows import format_time
from app.log.topics import ensure_topics
from app.store import Store
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.long

RETENTION_MS = 6 * 86_400_000
PARTITIONS = 2
MANY = "1000000"
HOUR_MS = 3_600_000

LOG_CHARACTERS = 10_000
"""What a failed test shows of the API's log, such as the stacks of a crash."""

NOT_HELD = (
    # Not everything that fits its schema is taken: a URL must be public, a window in the past.
    "positive_data_acceptance",
)
EDGE_CASES = {
    Scope.OPERATOR: ["accounts", "events", "log", "operations"],
    Scope.DEVELOPER: ["deliveries", "notices", "replays", "webhooks"],
}
"""The tags of the operations whose edge cases are sent with a key of this scope.

No check of a value depends on the scope: an operation for operators refuses developers before.
"""

DONE = {
    *("createWebhook", "rotateSecret", "disableWebhook", "createReplay", "cancelReplay"),
    "createNoticeEndpoint",
}
"""Operations that must have been reached with what they need."""

ENDLESS = "streamReplayProgress"
"""Its stream ends with the replay, and no worker runs here."""


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        servers = broker.serve().bootstrap_servers
        ensure_topics(servers, partitions=PARTITIONS, retention_ms=RETENTION_MS)
        yield servers


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    return url


@pytest.fixture
def api_url(bootstrap_servers: str, database: str, tmp_path: Path) -> Iterator[str]:
    environment = {
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_DEVELOPER_REQUESTS_PER_MINUTE": MANY,
        "REWIND_OPERATOR_REQUESTS_PER_MINUTE": MANY,
        "REWIND_UNAUTHORIZED_REQUESTS_PER_MINUTE": MANY,
        "REWIND_OPEN_REQUESTS_PER_MINUTE": MANY,
        "REWIND_PARTITIONS": str(PARTITIONS),
    }
    arguments = ["-m", "app", "api", "--database", database, "--port", "0"]
    arguments += ["--bootstrap-servers", bootstrap_servers]
    with ServerProcess(arguments, tmp_path / "api.log", environment) as api:
        yield api.start("rewind api ready on ")


@pytest.mark.parametrize(
    ("scope", "phases"),
    [
        # Generated requests use an operator's key.
        (Scope.OPERATOR, "examples,coverage,fuzzing,stateful"),
        (Scope.DEVELOPER, "examples,coverage,stateful"),
    ],
)
def test_the_api_conforms_to_its_openapi_document(
    api_url: str, database: str, receiver: ReceiverThread, tmp_path: Path, scope: Scope, phases: str
) -> None:
    with closing(Store.open(database)) as store:
        _, token = issue_key(store, "somebody", scope, "")
    (other,) = EDGE_CASES.keys() - {scope}
    (tmp_path / "schemathesis.toml").write_text(
        f"[[operations]]\ninclude-tag = {json.dumps(EDGE_CASES[other])}\n"
        "phases.coverage.enabled = false\n"
    )
    description = tmp_path / "openapi.json"
    with httpx.Client(
        base_url=api_url, headers={"authorization": f"Bearer {token}"}, timeout=DEADLINE_S
    ) as client:
        description.write_text(json.dumps(_narrowed(client, receiver.url)))
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
            *("run", str(description), "--url", api_url, "--no-color"),
            *("--header", f"Authorization: Bearer {token}"),
            *("--checks", "all", "--exclude-checks", ",".join(NOT_HELD)),
            *("--exclude-operation-id", ENDLESS),
            *("--phases", phases, "--max-examples", "3"),
            # In one thread: CPython 3.11 fails when two parse source at once, as Hypothesis does.
            *("--workers", "1", "--seed", "1", "--request-timeout", "60"),
            *("--suppress-health-check", "all", "--warnings", "off"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    log = (tmp_path / "api.log").read_text()
    assert done.returncode == 0, f"{done.stdout}\nlog of the API: {log[-LOG_CHARACTERS:]}"
    assert "Traceback" not in log, log
    # What it drove was not refusals alone.
    assert set(re.findall(r'"action": "(\w+)", .*"status": 20\d', log)) >= DONE


def _narrowed(client: httpx.Client, receiver_url: str) -> dict[str, Any]:
    """The description, in which sound webhooks are at the receiver and sound windows in the past.

    So webhooks are proved and replays created, and what follows from them is reached.
    """
    described: dict[str, Any] = client.get("/openapi.json").json()
    operations = [each for path in described["paths"].values() for each in path.values()]
    tags = {tag for each in operations for tag in each["tags"]}
    assert tags == set(itertools.chain(*EDGE_CASES.values()))
    schemas = described["components"]["schemas"]
    schemas["WebhookRequest"]["examples"] = [{"url": receiver_url}]
    schemas["WebhookRequest"]["properties"]["url"]["enum"] = [receiver_url]
    schemas["NoticeEndpointRequest"]["examples"] = [{"url": receiver_url}]
    schemas["NoticeEndpointRequest"]["properties"]["url"]["enum"] = [receiver_url]
    hour_ms = time.time_ns() // 1_000_000 // HOUR_MS * HOUR_MS
    window = {"from": format_time(hour_ms - 2 * HOUR_MS), "to": format_time(hour_ms - HOUR_MS)}
    for end, moment in window.items():
        schemas["ReplayRequest"]["properties"][end]["enum"] = [moment]
    webhook = client.post("/webhooks", json={"url": receiver_url}).json()
    assert webhook["status"] == "ENABLED", webhook
    schemas["ReplayRequest"]["properties"]["webhookId"]["enum"] = [webhook["id"]]
    del schemas["ReplayRequest"]["examples"]
    return described
