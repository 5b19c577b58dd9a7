"""The routes that read the log, with a real broker."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import TopicPartition
from fastapi import FastAPI

from app.api.application import create_app
from app.config import Settings
from app.domain.accounts import Scope
from app.domain.log_samples import LogSample, Series, SeriesKind
from app.domain.windows import format_time
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.services.metrics import ApiMetrics
from app.services.services import Services, now_ms
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.api_clients import client_of
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.committed_offsets import commit_offsets
from tests.support.kafka.written_log import Sent, WrittenLog

pytestmark = pytest.mark.anyio

TIME_MS = 1_763_712_000_000
GROUP = "a/b c?ü"
ATTEMPTS = 10


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with two topics, and a group that is behind."""
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        servers = broker.serve().bootstrap_servers
        log = WrittenLog(servers)
        any_time = str(2**63 - 1)
        log.make_topic("clicks", 2, retention_ms="-1", message_timestamp_after_max_ms=any_time)
        log.make_topic("empty")
        log.publish(
            "clicks",
            [
                Sent(b'{"a":1}', b"wh_1", 0, TIME_MS, (("event-id", b"evt_1"),)),
                Sent(b"\0\0\0\0\7\xff", None, 1, TIME_MS + 1),
                Sent(None, None, 0, 2**62),
            ],
        )
        commit_offsets(servers, GROUP, [TopicPartition("clicks", 0, 1)])
        yield servers


@pytest.fixture(scope="module")
async def application(
    servers: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FastAPI]:
    folder: Path = tmp_path_factory.mktemp("data")
    settings = Settings(data_dir=folder, bootstrap_servers=servers)
    make_migrated(settings.database)
    publisher = EventPublisher(servers, origin="local", server="test", make_topics=lambda: None)
    with closing(Store.open(settings.database)) as store:
        async with publisher, WebhookSender(Guard()) as sender:
            history = LogHistory(servers)
            application = create_app(
                Services.of(settings, store, publisher, history, Guard(), sender, ApiMetrics())
            )
            yield application


@pytest.fixture(scope="module")
async def client(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    issued = issue_key(application.state.services.store, "platform", Scope.OPERATOR, "")
    async with client_of(application, issued) as client:
        yield client


async def got(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def complete_page(client: httpx.AsyncClient, **params: Any) -> Any:
    """Return a page of messages without gaps; on a busy machine some run out of time."""
    for _ in range(ATTEMPTS):
        page = await got(client, "/log/topics/clicks/messages", **params)
        if not page["gaps"]:
            return page
    raise AssertionError(page["gaps"])


async def test_brokers_are_listed(client: httpx.AsyncClient, servers: str) -> None:
    body = await got(client, "/log/brokers")
    (broker,) = body["brokers"]
    assert f"{broker['host']}:{broker['port']}" == servers
    assert broker["isController"] is True
    assert body["clusterId"]
    assert body["zookeeper"] == []


async def test_topics_are_listed_a_page_at_a_time(client: httpx.AsyncClient) -> None:
    first = await got(client, "/log/topics", limit=1)
    assert (first["total"], first["nextCursor"], first["gaps"]) == (2, "clicks", [])
    (clicks,) = first["items"]
    assert clicks.pop("bytes") > 0
    assert clicks == {
        "name": "clicks",
        "partitions": 2,
        "offline": 0,
        "underReplicated": 0,
        "messages": 3,
        "retention": {"ms": -1, "bytes": -1, "policy": "delete"},
    }
    second = await got(client, "/log/topics", limit=1, cursor=first["nextCursor"])
    assert [each["name"] for each in second["items"]] == ["empty"]
    assert second["nextCursor"] is None
    assert (await got(client, "/log/topics", name="mpt"))["total"] == 1


async def test_a_topic_is_shown_with_its_partitions(client: httpx.AsyncClient) -> None:
    body = await got(client, "/log/topics/clicks")
    first, second = body["partitions"]
    assert (first["number"], first["startOffset"], first["endOffset"]) == (0, 0, 2)
    assert (first["leader"], first["replicas"], first["isr"]) == (0, [0], [0])
    assert first["firstAt"] == "2025-11-21T08:00:00.000Z"
    # A time that no calendar has is shown as the last valid one.
    assert first["lastAt"] == "9999-12-31T23:59:59.999Z"
    assert second["lastAt"] == "2025-11-21T08:00:00.001Z"
    assert body["nextStart"] is None
    only = await got(client, "/log/topics/clicks", start=1)
    assert [each["number"] for each in only["partitions"]] == [1]


async def test_samples_are_listed_by_topic_and_group(
    application: FastAPI, client: httpx.AsyncClient
) -> None:
    services: Services = application.state.services
    last_ms = now_ms() // 600_000 * 600_000
    starts_ms = [last_ms - minute * 60_000 for minute in (12, 11, 10)]
    for number, start_ms in enumerate(starts_ms):
        services.log_samples.add(
            start_ms,
            {
                Series(SeriesKind.TOPIC, "clicks"): LogSample(start_ms, 100 + 30 * number, 900),
                Series(SeriesKind.GROUP, GROUP): LogSample(start_ms, number),
            },
        )
    listed = await got(client, "/log/samples", name="clicks")
    assert (listed["kind"], listed["span"]) == ("topic", "minute")
    first, second = listed["items"]
    assert first == {
        "from": format_time(starts_ms[1]),
        "to": format_time(starts_ms[2]),
        "written": 30,
        "bytes": 900,
        "lag": None,
    }
    assert second["from"] == first["to"]
    lags = await got(client, "/log/samples", kind="group", name=GROUP)
    assert [each["lag"] for each in lags["items"]] == [0, 1, 2]
    past = {"kind": "group", "name": GROUP, "from": format_time(last_ms - 86_400_000)}
    tens = await got(client, "/log/samples", **past)
    assert tens["span"] == "tenMinutes"
    assert [each["lag"] for each in tens["items"]] == [1, 2]
    assert (await got(client, "/log/samples"))["items"] == []


async def test_groups_with_any_name_are_listed_and_shown(
    client: httpx.AsyncClient,
) -> None:
    listed = await got(client, "/log/groups")
    (row,) = listed["items"]
    assert (row["id"], row["state"], row["lag"]) == (GROUP, "Empty", 1)
    assert (row["isMirror"], row["mirrorsTo"]) == (False, None)
    shown = await got(client, "/log/group", id=GROUP)
    assert shown["group"] == row
    assert shown["partitions"] == [
        {
            "topic": "clicks",
            "partition": 0,
            "committed": 1,
            "endOffset": 2,
            "lag": 1,
            "owner": None,
        }
    ]
    assert (shown["members"], shown["gaps"]) == ([], [])


async def test_messages_are_shown(client: httpx.AsyncClient) -> None:
    body = await complete_page(client, order="oldest")
    text, framed, null = body["items"]
    assert text == {
        "partition": 0,
        "offset": 0,
        "timestampMs": TIME_MS,
        "time": "2025-11-21T08:00:00.000Z",
        "isAppendTime": False,
        "key": content(4, "text", "wh_1"),
        "value": content(7, "json", '{\n  "a": 1\n}'),
        "headers": [{"name": "event-id", "value": content(5, "text", "evt_1")}],
        "headersCount": 1,
    }
    assert framed["key"] is None
    assert framed["value"] == content(6, "binary", None) | {
        "hex": "0000000007ff",
        "schemaId": 7,
        "note": "no schema registry is set: REWIND_SCHEMA_REGISTRY",
    }
    assert (null["value"], null["timestampMs"]) == (None, 2**62)
    assert null["time"] == "9999-12-31T23:59:59.999Z"
    assert body["spans"] == [
        {"partition": 0, "startOffset": 0, "endOffset": 2},
        {"partition": 1, "startOffset": 0, "endOffset": 1},
    ]
    newest = await complete_page(client, limit=1, partition=0)
    assert [each["offset"] for each in newest["items"]] == [1]
    older = await complete_page(client, limit=1, cursor=newest["nextCursor"])
    assert [each["offset"] for each in older["items"]] == [0]
    since = await complete_page(client, time="2025-11-21T08:00:00.001Z", order="oldest", limit=1)
    assert since["items"] == [framed]


def content(size: int, form: str, text: str | None) -> dict[str, Any]:
    return {
        "size": size,
        "format": form,
        "text": text,
        "hex": None,
        "isCut": False,
        "schemaId": None,
        "note": None,
    }


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/log/topics/nowhere", 404, None),
        ("/log/topics/nowhere/messages", 404, None),
        ("/log/topics/%00", 404, None),
        ("/log/group?id=unknown", 404, None),
        ("/log/group?id=%00", 404, None),
        ("/log/group?id=", 404, None),
        ("/log/group", 400, "id"),
        ("/log/topics?limit=1001", 400, "limit"),
        ("/log/groups?limit=101", 400, "limit"),
        ("/log/topics/clicks/messages?limit=51", 400, "limit"),
        ("/log/topics/clicks/messages?order=sideways", 400, "order"),
        ("/log/topics/clicks/messages?time=soon", 400, "time"),
        ("/log/topics/clicks/messages?partition=2", 400, "partition"),
        ("/log/topics/clicks/messages?offset=0", 400, "partition"),
        ("/log/topics/clicks/messages?partition=0&offset=2", 400, "offset"),
        ("/log/topics/clicks/messages?cursor=x", 400, "cursor"),
        ("/log/topics/clicks/messages?cursor=nd.0-1&offset=1", 400, "offset"),
    ],
)
async def test_invalid_queries_are_rejected(
    client: httpx.AsyncClient, path: str, status: int, field: str | None
) -> None:
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.json().get("field") == field


async def test_developers_may_not_read_the_log(application: FastAPI) -> None:
    issued = issue_key(application.state.services.store, "alice", Scope.DEVELOPER, "")
    async with client_of(application, issued) as client:
        for path in (
            "brokers",
            "topics",
            "topics/clicks",
            "topics/clicks/messages",
            "groups",
            "group?id=a",
        ):
            assert (await client.get(f"/log/{path}")).status_code == 403, path
