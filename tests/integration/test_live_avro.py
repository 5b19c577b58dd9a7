"""Events in Avro, written by a stock serializer and delivered as JSON, with a registry of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from app.log.topics import DELIVERY_LOG, EVENTS
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.schemas.registry_process import RegistryProcess
from tests.support.service.live_service import LiveScene, event

pytestmark = pytest.mark.long

MATCHER = "rewind-live"
MALFORMED = 'rewind_live_events_total{result="malformed"}'


def schema(*more_fields: dict[str, Any]) -> str:
    user = {"type": "record", "name": "User", "fields": [{"name": "userId", "type": "string"}]}
    fields = [
        {"name": "id", "type": "string"},
        {"name": "type", "type": "string"},
        {"name": "data", "type": user},
        {"name": "note", "type": ["null", "string"]},
        *more_fields,
    ]
    return json.dumps({"type": "record", "name": "Event", "fields": fields})


FIRST = schema()
SECOND = schema({"name": "score", "type": "double", "default": 0.0})


class Platform:
    """A producer that writes events in Avro, by the schemas that it registers."""

    def __init__(self, scene: LiveScene, client: SchemaRegistryClient) -> None:
        self._scene = scene
        self._serializers = {text: AvroSerializer(client, text) for text in (FIRST, SECOND)}

    def encoded(self, text: str, document: dict[str, Any]) -> bytes:
        """A value by one of the schemas, which is registered now if it was not."""
        context = SerializationContext(EVENTS, MessageField.VALUE)
        value = self._serializers[text](document, context)
        assert isinstance(value, bytes)
        return value

    def publish(self, text: str, *documents: dict[str, Any]) -> None:
        self._scene.produce(EVENTS, [(None, {}, self.encoded(text, each)) for each in documents])


def happened(number: int, user_id: str = "42", **more: Any) -> dict[str, Any]:
    """An event as its producer holds it."""
    return {
        "id": f"evt_{number}",
        "type": "follow.created",
        "data": {"userId": user_id},
        "note": None,
    } | more


@pytest.fixture
def scene(tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread) -> Iterator[LiveScene]:
    """All events lie in one partition. Ends before its receiver does."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url, partitions=1) as scene:
        scene.make()
        yield scene


@pytest.fixture
def registry(tmp_path: Path, broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with RegistryProcess(tmp_path, broker.bootstrap_servers) as registry:
        yield registry.serve()


@pytest.fixture
def platform(scene: LiveScene, registry: RegistryProcess) -> Iterator[Platform]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield Platform(scene, client)


def test_events_of_two_versions_and_json_reach_receivers_as_json_in_their_order(
    scene: LiveScene, platform: Platform, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "follow.*", where={"data.userId": "42"})
    platform.publish(FIRST, happened(0), happened(1, user_id="7"))
    platform.publish(SECOND, happened(2, score=0.5, note="ü"))
    scene.publish(event(3, userId="42"))
    platform.publish(FIRST, happened(4))
    scene.live(schema_registry=registry.url, live_in_flight=1)
    until(lambda: len(receiver.taken) == 4, "all came")
    assert receiver.taken == ["evt_0", "evt_2", "evt_3", "evt_4"]
    assert not receiver.problems
    bodies = [json.loads(each.body) for each in receiver.webhooks]
    assert bodies[:2] == [happened(0), happened(2, score=0.5, note="ü")]
    # What a replay would send are the bytes in the log.
    logged = scene.read(DELIVERY_LOG)
    assert [each.value for each in logged] == [each.body for each in receiver.webhooks]
    assert [each.headers["event-type"] for each in logged] == ["follow.created"] * 4


def test_headers_name_an_event_before_its_fields_do(
    scene: LiveScene, platform: Platform, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "block.*")
    scene.live(schema_registry=registry.url)
    headers = {"event-id": "evt_header", "event-type": "block.created"}
    scene.produce(EVENTS, [(None, headers, platform.encoded(FIRST, happened(0)))])
    until(lambda: receiver.taken == ["evt_header"], "it came")


def test_undecodable_events_are_logged_with_their_offset_and_skipped(
    scene: LiveScene, platform: Platform, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    live = scene.live(schema_registry=registry.url)
    good = platform.encoded(FIRST, happened(0))
    unknown = b"\0" + (2).to_bytes(4) + good[5:]
    scene.produce(EVENTS, [(None, {}, value) for value in (good[:-3], unknown, good)])
    until(lambda: receiver.taken == ["evt_0"], "the good one came")
    # Its schema gets the id that was unknown.
    platform.publish(SECOND, happened(1, score=1.0))
    until(lambda: receiver.taken == ["evt_0", "evt_1"], "so did the one that was written later")
    assert scrape(live.metrics_port)[MALFORMED] == 2
    places = [
        line["place"]
        for line in map(json.loads, filter(lambda each: each[0] == "{", live.output.splitlines()))
        if line["event"] == "event-malformed"
    ]
    assert places == ["events-0-0", "events-0-1"]
    until(lambda: scene.uncommitted(MATCHER, EVENTS) == 0, "all is committed")


def test_an_event_that_is_too_large_as_json_is_skipped(
    scene: LiveScene, platform: Platform, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    live = scene.live(schema_registry=registry.url)
    # In JSON each of these characters takes six bytes.
    platform.publish(FIRST, happened(0, note="\1" * 200_000), happened(1))
    until(lambda: receiver.taken == ["evt_1"], "the small one came")
    assert scrape(live.metrics_port)[MALFORMED] == 1


def test_while_the_registry_is_away_nothing_is_lost_or_overtaken(
    scene: LiveScene, platform: Platform, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*")
    live = scene.live(schema_registry=registry.url, live_in_flight=1)
    platform.publish(FIRST, happened(0))
    until(lambda: receiver.taken == ["evt_0"], "the first one came")
    # The schema is registered, and only the platform has requested it.
    value = platform.encoded(SECOND, happened(2, score=1.0))
    registry.kill()
    # Schemas that are in the cache need no request.
    platform.publish(FIRST, happened(1))
    until(lambda: "evt_1" in receiver.taken, "the known schema is enough")
    until(lambda: scene.uncommitted(MATCHER, EVENTS) == 0, "it is committed")
    scene.produce(EVENTS, [(None, {}, value)])
    platform.publish(FIRST, happened(3))
    failures = "rewind_live_registry_failures_total"
    until(lambda: scrape(live.metrics_port)[failures] >= 2, "it is asked again")
    scene.owe(webhook, event(4))
    until(lambda: "evt_4" in receiver.taken, "earlier deliveries are sent meanwhile")
    assert live.output.count('"event": "schema-registry-unavailable"') == 1
    assert scene.uncommitted(MATCHER, EVENTS) == 2
    registry.serve()
    until(lambda: len(receiver.taken) == 5, "all came")
    assert receiver.taken == ["evt_0", "evt_1", "evt_4", "evt_2", "evt_3"]


def test_a_live_process_that_waits_for_the_registry_can_be_stopped(
    scene: LiveScene, platform: Platform, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    value = platform.encoded(FIRST, happened(0))
    registry.kill()
    live = scene.live(schema_registry=registry.url)
    scene.produce(EVENTS, [(None, {}, value)])
    live.until_says("schema-registry-unavailable")
    assert live.stop() == 0
    registry.serve()
    scene.live(schema_registry=registry.url)
    until(lambda: receiver.taken == ["evt_0"], "the next one reads it")


def test_without_a_registry_a_value_is_taken_as_it_is(
    scene: LiveScene, platform: Platform, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "follow.*")
    scene.live()
    value = platform.encoded(FIRST, happened(0))
    headers = {"event-id": "evt_0", "event-type": "follow.created"}
    scene.produce(EVENTS, [(None, headers, value)])
    until(lambda: receiver.taken == ["evt_0"], "it came")
    assert receiver.webhooks[0].body == value


def test_rewind_up_passes_the_registry_on_and_hides_its_password(
    tmp_path: Path, broker: BrokerProcess, registry: RegistryProcess, receiver: ReceiverThread
) -> None:
    folder = tmp_path / "up"
    arguments = ["-m", "app", "up", "--data-dir", str(folder), "--port", "0"]
    arguments += ["--bootstrap-servers", broker.bootstrap_servers]
    environment = {
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_SCHEMA_REGISTRY": f"http://rewind:hunter2@127.0.0.1:{registry.port}",
        "REWIND_PARTITIONS": "1",
    }
    with ServerProcess(arguments, tmp_path / "up.log", environment) as up:
        url = up.start("rewind ready on ")
        key = (folder / "operator.key").read_text().strip()
        with httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=DEADLINE_S
        ) as api:
            asked = {"url": receiver.url, "eventTypes": ["follow.*"]}
            webhook = api.post("/webhooks", json=asked).raise_for_status().json()
        receiver.expect(webhook["secret"])
        database = f"sqlite:///{folder}/rewind.db"
        with (
            LiveScene(tmp_path, broker.bootstrap_servers, database, partitions=1) as scene,
            SchemaRegistryClient({"url": registry.url}) as client,
        ):
            Platform(scene, client).publish(FIRST, happened(0))
        until(lambda: receiver.taken == ["evt_0"], "it came")
        assert not any("hunter2" in line for line in command_lines())
        assert up.stop() == 0
        assert "hunter2" not in up.output


def command_lines() -> list[str]:
    """The command lines of all processes, as `ps` shows them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue  # it has just ended
    return found
