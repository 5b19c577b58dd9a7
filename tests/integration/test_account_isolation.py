"""A developer tries every route, page, replay and estimate, and finds nothing of another account.

Everything of the other account has a word in it that no answer may contain.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.api.application import openapi_document
from app.console.application import PAGES
from app.domain.account_notices import NewNoticeEndpoint, NoticeEndpoint
from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryPlace, format_delivery_id
from app.domain.grants import Grant
from app.domain.model import AwaitedRestore, NewReplay, Replay, Webhook, Window
from app.domain.options import Only, Source
from app.domain.rules import Rule
from app.domain.states import TERMINAL
from app.domain.windows import format_time
from app.live.matcher import GROUP
from app.log.topics import DELIVERY_LOG, EVENTS
from app.webhooks.signing import new_secret
from logbroker.client.partitioner import partition_for_key
from tests.support.http.api_clients import client_at, dry_run
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.console_service import ConsoleScene
from tests.support.service.live_service import PARTITIONS, now_ms

WORD: Final = "confidential"
RULE: Final = f"{WORD}-rule"
GRANT: Final = f"{WORD}-grant"
EVENT: Final = f"{WORD}-0"

ENDLESS: Final = {"/console/live"}

Private = tuple[Webhook, Replay, Replay]
"""A webhook of another account, its replay with failures, and one that waits for the archive."""


@pytest.fixture
def scene(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread
) -> Iterator[ConsoleScene]:
    """It ends before its receiver."""
    with ConsoleScene(tmp_path, broker, f"sqlite:///{tmp_path}/rewind.db") as scene:
        scene.serve()
        yield scene


@pytest.fixture
def private(scene: ConsoleScene) -> Private:
    """Everything that an account can have; its receiver is down."""
    scene.key(f"{WORD}-alice", Scope.DEVELOPER)
    url = f"http://127.0.0.1:{free_port()}/{WORD}"
    webhook = scene.webhook_at(f"{WORD}-alice", url, WORD)
    scene.store.put_rule(Rule(webhook.id, RULE, ("*",), (("data.user", WORD),)))
    scene.store.put_grant(Grant(webhook.account_id, GRANT, (f"{WORD}.*",)))
    notified = NewNoticeEndpoint(webhook.account_id, url, WORD, new_secret())
    scene.store.create_notice_endpoint(notified)
    replay = scene.replay(webhook, scene.missed(webhook, *map(private_event, range(3))))
    until(lambda: scene.store.replay(replay.id).state in TERMINAL, "the private replay ended")
    assert scene.store.replay(replay.id).counts.failed == 3
    archived = scene.webhook_at(f"{WORD}-alice", url, WORD)
    awaits = AwaitedRestore(0, 1)
    new = NewReplay(archived.id, Window(0, 1), source=Source.ARCHIVE, awaits=awaits)
    return webhook, scene.store.replay(replay.id), scene.store.create_replay(new)[0]


def private_event(number: int) -> dict[str, Any]:
    return {"id": f"{WORD}-{number}", "type": f"{WORD}.sent", "data": {"text": WORD}}


def mallory_at(scene: ConsoleScene, receiver: ReceiverThread, partition: int) -> Webhook:
    """Create a webhook with a rule for all events, whose log is that of the private one."""
    while True:
        webhook = scene.webhook_of("mallory", receiver)
        if partition_for_key(webhook.id.encode(), scene.partitions) == partition:
            scene.store.put_rule(Rule(webhook.id, "default", ("*",)))
            return webhook
        scene.store.delete_webhook(webhook.id)


def check_answer(answer: httpx.Response, ids: list[str]) -> None:
    """Fail if an answer has something of the other account that was not in the request."""
    requested = str(answer.request.url) + answer.request.read().decode()
    for secret in (WORD, *ids):
        assert secret in requested or secret not in answer.text, (answer.request, answer.text)
    assert WORD not in "".join(answer.headers.values())


def ids_of(private: Private) -> list[str]:
    webhook, replay, archived = private
    return [webhook.account_id, webhook.id, archived.webhook_id, replay.id, archived.id]


def operations() -> Iterator[tuple[str, str, str]]:
    """Id, method and path of every operation of the API."""
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            yield operation["operationId"], method.upper(), path


def pages() -> Iterator[tuple[str, str]]:
    """Method and path of every route of the console."""
    for module in PAGES:
        for route in module.router.routes:
            for method in route.methods:
                yield method, route.path


def delivery_of(webhook: Webhook) -> str:
    """The id of the first delivery of the other account."""
    return format_delivery_id(place_of(webhook))


def place_of(webhook: Webhook) -> DeliveryPlace:
    return DeliveryPlace("here", partition_for_key(webhook.id.encode(), PARTITIONS), 0)


def endpoint_of(scene: ConsoleScene, webhook: Webhook) -> NoticeEndpoint:
    """The notice endpoint of the other account."""
    (endpoint,) = scene.store.notice_endpoints(of_account=webhook.account_id).items
    return endpoint


def path_with(path: str, webhook: Webhook, replay: Replay, endpoint_id: str = "") -> str:
    """The path with ids of the other account."""
    names = {
        "webhook_id": webhook.id,
        "replay_id": replay.id,
        "account_id": webhook.account_id,
        "topic": "delivery_log",
        "delivery_id": delivery_of(webhook),
        "event_id": EVENT,
        "endpoint_id": endpoint_id,
        "name": GRANT if "grants" in path else RULE,
    }
    if "/log/" in path:
        names["name"] = "delivery_log"
    return re.sub(r"{(\w+)(?::path)?}", lambda match: names[match[1]], path)


def test_a_second_account_finds_nothing_of_the_first(
    scene: ConsoleScene, private: Private, receiver: ReceiverThread
) -> None:
    webhook = private[0]
    partition = partition_for_key(webhook.id.encode(), scene.partitions)
    key = scene.key("mallory", Scope.DEVELOPER)
    mine = mallory_at(scene, receiver, partition)
    before = state_of(scene, private)
    with (
        httpx.Client(base_url=scene.origin, timeout=DEADLINE_S) as browser,
        client_at(scene.origin, key) as api,
    ):
        publish_privately(scene, webhook)
        try_every_route(api, private, endpoint_of(scene, webhook).id)
        try_every_page(browser, key, private, endpoint_of(scene, webhook).id)
        try_own_replays(scene, api, mine, private)
    assert state_of(scene, private) == before
    until(lambda: scene.uncommitted(GROUP, EVENTS) == 0, "the live path matched all events")
    # Deliveries are in the log before the position of their event is committed.
    assert mine.id not in {record.key for record in scene.read(DELIVERY_LOG)}
    assert receiver.taken == []
    check_messages(scene, webhook)


def check_messages(scene: ConsoleScene, webhook: Webhook) -> None:
    """Check that operators see a delivery, and the account of an event in API and console."""
    account_id = webhook.account_id
    key = scene.key()
    with httpx.Client(base_url=scene.origin, timeout=DEADLINE_S) as operator:
        bearer = {"authorization": f"Bearer {key}"}
        delivery = operator.get(f"/deliveries/{delivery_of(webhook)}", headers=bearer)
        assert delivery.json()["webhookId"] == webhook.id
        event = operator.get(f"/events/{EVENT}", headers=bearer).json()
        assert [each["webhookId"] for each in event["deliveries"]] == [webhook.id]
        answer = operator.get("/log/topics/events/messages", headers=bearer)
        found = [
            header["value"]["text"]
            for message in answer.json()["items"]
            for header in message["headers"]
            if header["name"] == "account-id"
        ]
        assert found == [account_id]
        assert operator.post("/console/sign-in", data={"key": key}).status_code == 303
        page = operator.get("/console/log/topics/events/messages").text
        assert f"account-id: {account_id}" in page


def state_of(scene: ConsoleScene, private: Private) -> list[object]:
    """Everything of the other account that a request may have changed."""
    webhook, replay, archived = private
    store = scene.store
    return [
        store.webhook(webhook.id).secret,
        store.webhook(webhook.id).url,
        store.webhook(webhook.id).status,
        store.rules(webhook.id),
        store.grants(webhook.account_id),
        endpoint_of(scene, webhook),
        store.replay(replay.id),
        store.replay(archived.id),
        len(store.replays(of_account=webhook.account_id).items),
        store.resends(webhook.id, place_of(webhook)),
    ]


def publish_privately(scene: ConsoleScene, webhook: Webhook) -> None:
    """Publish events for the other account: by its grant, by its id, and to its webhook."""
    headers = {"authorization": f"Bearer {scene.key()}"}
    time = format_time(now_ms())
    events = [private_event(number) | {"time": time} for number in range(10, 13)]
    events[1]["accountId"] = webhook.account_id
    events[2]["webhookId"] = webhook.id
    answer = httpx.post(f"{scene.origin}/events", json=events, headers=headers, timeout=DEADLINE_S)
    assert answer.status_code == 202, answer.text


def try_every_route(api: httpx.Client, private: Private, endpoint_id: str) -> None:
    webhook, replay, archived = private
    window = {"from": format_time(replay.window.from_ms), "to": format_time(now_ms())}
    bodies: dict[str, list[dict[str, Any]]] = {
        "createReplay": [
            {"webhookId": webhook.id, **window, **options}
            for options in ({}, {"dryRun": True}, {"source": "archive"}, {"only": "failed"})
        ],
        "createWebhook": [{"url": "https://example.com", "accountId": webhook.account_id}],
        "createNoticeEndpoint": [{"url": "https://example.com", "accountId": webhook.account_id}],
        "publishEvents": [private_event(1) | {"time": window["from"], "webhookId": webhook.id}],
        "updateWebhook": [{"description": "mine"}],
        "updateNoticeEndpoint": [{"description": "mine"}, {"url": "https://example.com"}],
        "confirmNoticeEndpoint": [{"code": "unknown"}],
        "putRule": [{"eventTypes": ["*"]}],
        "matchRules": [{"type": "private.made", "data": {}}],
        "putGrant": [{"eventTypes": ["*"]}],
        "resendDeliveries": [
            {"deliveryIds": [delivery_of(webhook)]},
            {"eventIds": [private_event(0)["id"]]},
        ],
    }
    now = datetime.now(UTC)
    dates = {"from_date": f"{now - timedelta(hours=1):%Y%m%d%H%M}", "to_date": f"{now:%Y%m%d%H%M}"}
    queries = [dates, dates | {"accountId": webhook.account_id, "webhookId": webhook.id}]
    tried = 0
    for operation, method, path in operations():
        for target in (replay, archived):
            for body in bodies.get(operation, [{}]):
                for query in queries:
                    content = None if method in ("GET", "DELETE") else json.dumps(body)
                    answer = api.request(
                        method,
                        path_with(path, webhook, target, endpoint_id),
                        params=query,
                        content=content,
                        headers={"content-type": "application/json"},
                    )
                    check_answer(answer, [*ids_of(private), endpoint_id])
                    if "{" in path:
                        assert answer.status_code in (403, 404), (operation, answer.text)
                    tried += 1
    assert tried > 100
    for listed in ("/webhooks", "/replays", "/notice-endpoints"):
        assert api.get(listed, params=queries[1]).status_code == 403
        assert WORD not in api.get(listed).text


def try_every_page(browser: httpx.Client, key: str, private: Private, endpoint_id: str) -> None:
    webhook, replay, archived = private
    signed_in = browser.post("/console/sign-in", data={"key": key})
    assert signed_in.status_code == 303
    page = browser.get("/console/jobs").text
    (csrf,) = set(re.findall(r'name="csrf" value="([0-9a-f]+)"', page))
    form = {
        "csrf": csrf,
        "webhookId": webhook.id,
        "last": "1h",
        "once": "0123456789abcdef",
        "action": "cancel",
        "id": [replay.id, archived.id],
        "url": "https://example.com/",
        "grace": "0",
    }
    queries: list[dict[str, str]] = [
        {},
        {"webhookId": webhook.id, "cloneOf": replay.id, "accountId": webhook.account_id},
    ]
    for method, path in sorted(set(pages())):
        if path in ENDLESS or path.endswith("/sign-out") or "static" in path:
            continue
        for target in (replay, archived):
            for query in queries:
                place = path_with(path, webhook, target, endpoint_id)
                data = form if method == "POST" else None
                answer = browser.request(method, place, params=query, data=data)
                check_answer(answer, [*ids_of(private), endpoint_id])
                if "{" in path:
                    assert answer.status_code in (403, 404), (place, answer.text)
    # The stream of changes knows no job of another account.
    watch = f"{replay.id}:0,{archived.id}:0"
    with browser.stream("GET", "/console/live", params={"watch": watch}) as stream:
        assert WORD not in next(stream.iter_text())


def try_own_replays(
    scene: ConsoleScene, api: httpx.Client, mine: Webhook, private: Private
) -> None:
    """Replay a window with events of the other account in the same partition."""
    window = {
        "webhookId": mine.id,
        "from": format_time(private[1].window.from_ms - 1_000),
        "to": format_time(now_ms()),
    }
    assert dry_run(api, window)["events"] == 0
    check_answer(api.post("/replays", json=window | {"dryRun": True}), ids_of(private))
    for options in ({"only": str(Only.ALL)}, {"only": str(Only.FAILED)}):
        made = api.post("/replays", json=window | options)
        assert made.status_code == 202, made.text
        replay_id = made.json()["id"]
        until(lambda: scene.store.replay(replay_id).state in TERMINAL, "the own replay ended")  # noqa: B023
        for part in ("", "/failures", "/moves", "/samples"):
            answer = api.get(f"/replays/{replay_id}{part}")
            assert answer.status_code == 200
            check_answer(answer, ids_of(private))
        counts = scene.store.replay(replay_id).counts
        assert (counts.delivered, counts.failed, counts.duplicates) == (0, 0, 0)
        retried = api.post(f"/replays/{replay_id}/retry")
        check_answer(retried, ids_of(private))
    archived = api.post("/replays", json=window | {"source": "archive"})
    check_answer(archived, ids_of(private))
    for part in ("statistics", "missed", "rules", "deliveries"):
        answer = api.get(f"/webhooks/{mine.id}/{part}")
        assert answer.status_code == 200
        check_answer(answer, ids_of(private))
