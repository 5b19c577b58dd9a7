"""Look-ups of events by their ids, on a real log, API and live path."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from app.cli import main
from app.config import Settings
from app.domain.accounts import Scope
from app.domain.event_index import CHUNK_ENTRIES_MAX, EventPartition
from app.log.event_records import EventRecords
from app.log.topics import DELIVERY_LOG, EVENTS
from app.services.event_index import EventIndexer
from app.store.event_index import EventIndex
from tests.support.http.api_clients import client_at
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene
from tests.support.service.live_service import RETENTION_MS, event


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleScene]:
    folder: Path = tmp_path_factory.mktemp("events")
    options = ("--stop-on-stdin-close", "--group-initial-rebalance-delay-ms", "0")
    with (
        BrokerProcess(folder / "log", *options) as broker,
        ConsoleScene(folder, broker.serve(), f"sqlite:///{folder}/rewind.db") as scene,
    ):
        scene.make()
        scene.start_api()
        scene.live(live_delays_s="0")
        scene.key("alice", Scope.DEVELOPER)
        scene.key("mallory", Scope.DEVELOPER)
        yield scene


@pytest.fixture(scope="module")
def operator(scene: ConsoleScene) -> Iterator[httpx.Client]:
    with client_at(scene.origin, scene.key()) as client:
        yield client


@pytest.fixture(scope="module")
def indexer(scene: ConsoleScene) -> Iterator[EventIndexer]:
    """An indexer that indexes every record, one step at a time."""
    settings = Settings(bootstrap_servers=scene.bootstrap_servers, origin="here")
    with closing(EventRecords(settings)) as records:
        yield EventIndexer(scene.store, index_of(scene), records, RETENTION_MS, unindexed_min=1)


def index_of(scene: ConsoleScene) -> EventIndex:
    return EventIndex(scene.store.database, "here")


def get(api: httpx.Client, event_id: str) -> dict[str, Any]:
    answer = api.get(f"/events/{event_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def statuses(api: httpx.Client, event_id: str) -> list[str]:
    """The statuses of the deliveries of an event, sorted."""
    answer = api.get(f"/events/{event_id}")
    found = answer.json()["deliveries"] if answer.status_code == 200 else []
    return sorted(each["status"] for each in found)


def index_all(indexer: EventIndexer) -> None:
    while indexer.index_new().unindexed:
        pass


def test_an_event_shows_its_payload_and_its_deliveries(
    scene: ConsoleScene,
    operator: httpx.Client,
    indexer: EventIndexer,
    receiver: ReceiverThread,
    other: ReceiverThread,
) -> None:
    first = scene.webhook_of("alice", receiver)
    second = scene.webhook_of("mallory", other)
    other.answer(422)
    published = event(1, "order.paid", text="ü \u2028")
    for webhook in (first, second):
        scene.owe(webhook, published)
    until(lambda: statuses(operator, "evt_1") == ["failed", "succeeded"], "both are settled")
    before = get(operator, "evt_1")
    assert before["payload"].encode() == json.dumps(published).encode()
    assert (before["type"], before["accountId"], before["hasMore"]) == ("order.paid", None, False)
    assert {"name": "event-id", "value": "evt_1"} in before["headers"]
    expected = {first.id: "succeeded", second.id: "failed"}
    assert {each["webhookId"]: each["status"] for each in before["deliveries"]} == expected
    one = before["deliveries"][0]
    assert (
        operator.get(f"/deliveries/{one['id']}").json() | one
        == operator.get(f"/deliveries/{one['id']}").json()
    )
    # The same without an index and with one.
    index_all(indexer)
    assert len(index_of(scene).find("evt_1")) == 2
    assert get(operator, "evt_1") == before


def test_an_event_that_matches_no_rule_has_no_deliveries(
    scene: ConsoleScene, operator: httpx.Client, indexer: EventIndexer
) -> None:
    account = scene.store.create_account("audited").id
    published = event(2, "unheard.of") | {"accountId": account}
    assert operator.post("/events", json=published).status_code == 202
    found = get(operator, "evt_2")
    assert (found["type"], found["deliveries"], found["accountId"]) == ("unheard.of", [], account)
    # A producer that sets no headers.
    scene.produce(EVENTS, [(None, {}, json.dumps(event(3)).encode())])
    assert get(operator, "evt_3")["type"] == "follow.created"
    index_all(indexer)
    assert get(operator, "evt_2") == found
    assert get(operator, "evt_3")["deliveries"] == []


def test_ids_may_have_any_visible_characters(
    scene: ConsoleScene, operator: httpx.Client, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook_of("alice", receiver)
    for event_id in ("a/b//c", "100%", "?x=1&y#z", "a.b", "<b>"):
        scene.owe(webhook, event(4) | {"id": event_id})
        quoted = "".join(f"%{byte:02X}" for byte in event_id.encode())
        found = get(operator, quoted)
        assert (found["id"], len(found["deliveries"])) == (event_id, 1)
    named = scene.read(DELIVERY_LOG)[-1]
    scene.produce(DELIVERY_LOG, [(webhook.id, {}, b"\xff\x00")])
    last = [each for each in scene.read(DELIVERY_LOG) if each.partition == named.partition][-1]
    if last.value == b"\xff\x00":
        found = get(operator, f"delivery_log-{last.partition}-{last.offset}")
        assert (found["payload"], found["payloadBase64"]) == (None, "/wA=")


@pytest.mark.parametrize(
    ("event_id", "status"),
    [("evt_404", 404), ("a%20b", 400), ("%00", 400), ("%C3%BC", 400), ("x" * 257, 400), ("", 400)],
)
def test_unknown_and_invalid_ids_are_refused(
    operator: httpx.Client, event_id: str, status: int
) -> None:
    answer = operator.get(f"/events/{event_id}")
    assert answer.status_code == status, answer.text
    if status == 400:
        assert answer.json()["field"] == "event_id"


def test_an_account_sees_events_as_far_as_they_are_addressed_to_it(
    scene: ConsoleScene,
    operator: httpx.Client,
    indexer: EventIndexer,
    receiver: ReceiverThread,
    other: ReceiverThread,
) -> None:
    mine = scene.webhook_of("alice", receiver)
    theirs = scene.webhook_of("mallory", other)
    scene.owe(mine, event(6))
    scene.owe(theirs, event(6), event(7))
    scene.publish(event(8))
    until(lambda: len(statuses(operator, "evt_6")) == 2, "both are in the log")
    with client_at(scene.origin, scene.key("alice", Scope.DEVELOPER)) as alice:
        for _ in range(2):
            found = get(alice, "evt_6")
            assert [each["webhookId"] for each in found["deliveries"]] == [mine.id]
            names = {each["name"] for each in found["headers"]}
            assert names.isdisjoint({"server", "audit", "account-id"})
            for foreign in ("evt_7", "evt_8"):
                assert alice.get(f"/events/{foreign}").status_code == 404
            index_all(indexer)
        scene.store.delete_webhook(mine.id)
        assert alice.get("/events/evt_6").status_code == 404
    assert [each["webhookId"] for each in get(operator, "evt_6")["deliveries"]] == [theirs.id]


def test_an_event_with_very_many_deliveries_shows_some(
    scene: ConsoleScene, operator: httpx.Client, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook_of("alice", receiver)
    scene.owe(webhook, *[event(9)] * 30)
    until(lambda: len(statuses(operator, "evt_9")) == 25, "the event is in the log")
    assert get(operator, "evt_9")["hasMore"]


def test_a_command_prints_an_event(
    scene: ConsoleScene, operator: httpx.Client, receiver: ReceiverThread
) -> None:
    scene.owe(scene.webhook_of("alice", receiver), event(10))
    until(lambda: statuses(operator, "evt_10") == ["succeeded"], "the delivery is settled")
    options = ["--api-url", scene.origin, "--api-key", scene.key()]
    result = CliRunner().invoke(main, ["events", "get", "evt_10", *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == get(operator, "evt_10")
    result = CliRunner().invoke(main, ["events", "get", "evt_404", *options])
    assert (result.exit_code, result.stdout) == (1, "")


def test_events_among_too_many_records_without_an_index_are_found_later(
    scene: ConsoleScene, operator: httpx.Client, indexer: EventIndexer
) -> None:
    index_all(indexer)
    count = 2 * CHUNK_ENTRIES_MAX + 10_000
    header = {"event-type": "unheard.of"}
    records = [(None, header | {"event-id": f"bulk_{n}"}, b"{}") for n in range(count)]
    scene.produce(EVENTS, records)
    # The process of the API may have begun to index them.
    answer = operator.get("/events/bulk_0")
    if answer.status_code == 503:
        assert "are not indexed yet" in answer.json()["detail"]
        assert answer.headers["retry-after"] == "10"
    index_all(indexer)
    until(lambda: operator.get("/events/bulk_0").status_code == 200, "the first is indexed")
    assert get(operator, f"bulk_{count - 1}")["type"] == "unheard.of"
    assert operator.get("/events/bulk_x").status_code == 404
    positions = index_of(scene).positions()
    ends = sum(positions.get(EventPartition(False, n), 0) for n in range(scene.partitions))
    assert ends >= count
