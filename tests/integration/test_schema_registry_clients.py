"""confluent-kafka's own classes for schema registries, as their users have them, against ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from logbroker.schemas.decoder import AvroDecoder
from logbroker.schemas.lookup import SchemaLookup
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S
from tests.support.schemas.registry_process import RegistryProcess

TOPIC = "events"
SUBJECT = "events-value"


def record(*fields: dict[str, Any], name: str = "rewind.Event") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "string"}
FIRST = record(ID, {"name": "count", "type": "int"})
SECOND = record(
    ID, {"name": "count", "type": "long"}, {"name": "who", "type": "string", "default": "unknown"}
)
INCOMPATIBLE = record(ID, {"name": "count", "type": "string"})


@pytest.fixture
def registry(tmp_path: Path, broker: BrokerProcess) -> Iterator[RegistryProcess]:
    with RegistryProcess(tmp_path, broker.bootstrap_servers) as process:
        yield process.serve()


@pytest.fixture
def client(registry: RegistryProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def reader(registry: RegistryProcess) -> Iterator[SchemaRegistryClient]:
    """Another client, which remembers nothing of what the first one did."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def avro(text: str) -> Schema:
    return Schema(text, "AVRO")


def context(topic: str = TOPIC) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def refused(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_two_versions_of_a_schema_are_read_each_with_the_other(
    client: SchemaRegistryClient, reader: SchemaRegistryClient
) -> None:
    old = AvroSerializer(client, FIRST)({"id": "a", "count": 1}, context())
    new = AvroSerializer(client, SECOND)({"id": "b", "count": 2, "who": "me"}, context())
    assert (old[:5], new[:5]) == (b"\0\0\0\0\1", b"\0\0\0\0\2")
    with_new = AvroDeserializer(reader, SECOND)
    assert with_new(old, context()) == {"id": "a", "count": 1, "who": "unknown"}
    assert with_new(new, context()) == {"id": "b", "count": 2, "who": "me"}
    as_written = AvroDeserializer(reader)
    assert as_written(old, context()) == {"id": "a", "count": 1}
    assert as_written(new, context()) == {"id": "b", "count": 2, "who": "me"}


def test_an_old_schema_reads_what_a_forward_compatible_one_wrote(
    client: SchemaRegistryClient,
) -> None:
    client.set_compatibility(SUBJECT, "FORWARD")
    client.register_schema(SUBJECT, avro(FIRST))
    added = record(ID, {"name": "count", "type": "int"}, {"name": "who", "type": "string"})
    written = AvroSerializer(client, added)({"id": "a", "count": 1, "who": "me"}, context())
    assert AvroDeserializer(client, FIRST)(written, context()) == {"id": "a", "count": 1}


def test_an_incompatible_schema_is_refused_with_what_is_incompatible(
    client: SchemaRegistryClient,
) -> None:
    AvroSerializer(client, FIRST)({"id": "a", "count": 1}, context())
    with pytest.raises(SchemaRegistryError) as error:
        AvroSerializer(client, INCOMPATIBLE)({"id": "a", "count": "1"}, context())
    assert refused(error) == (409, 409)
    message = error.value.error_message
    assert "compatibility BACKWARD" in message
    assert "/fields/1/type: reader needs string, writer has int" in message
    assert client.get_versions(SUBJECT) == [1]


def test_what_the_serializer_wrote_reaches_a_consumer_and_the_decoder(
    registry: RegistryProcess, client: SchemaRegistryClient, broker: BrokerProcess
) -> None:
    serializer = AvroSerializer(client, FIRST)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(TOPIC, serializer({"id": "a", "count": 7}, context()))
    assert producer.flush(DEADLINE_S) == 0
    settings = {"group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    consumer.subscribe([TOPIC])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    value = message.value()
    assert value is not None
    assert AvroDeserializer(client)(value, context()) == {"id": "a", "count": 7}
    decoder = AvroDecoder(SchemaLookup(registry.url))
    assert decoder.to_json(value) == b'{"id":"a","count":7}'
    decoder.close()


def test_the_example_of_the_page_works(
    registry: RegistryProcess, broker: BrokerProcess, reader: SchemaRegistryClient
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "schemas.md").read_text()
    example = page.partition("## With Python")[2].partition("```python\n")[2].partition("```")[0]
    code = example.replace("http://127.0.0.1:8081", registry.url)
    names: dict[str, Any] = {}
    exec(code.replace("127.0.0.1:9092", broker.bootstrap_servers), names)
    names["registry"].__exit__()
    assert names["click"] == {"user": "user-7", "page": "/up"}
    assert reader.get_latest_version("clicks-value").version == 1


def test_levels_decide_what_may_follow(client: SchemaRegistryClient) -> None:
    client.register_schema(SUBJECT, avro(FIRST))
    assert client.get_compatibility() == "BACKWARD"
    without_count = avro(record(ID))
    assert client.test_compatibility(SUBJECT, without_count)
    # It is annotated as a `str`, and returns the parsed response.
    answered: Any = client.set_compatibility(SUBJECT, "FULL_TRANSITIVE")
    assert answered == {"compatibility": "FULL_TRANSITIVE"}
    assert client.get_compatibility(SUBJECT) == "FULL_TRANSITIVE"
    assert not client.test_compatibility(SUBJECT, without_count, verbose=True)
    assert not client.test_compatibility_all_versions(SUBJECT, without_count)
    with pytest.raises(SchemaRegistryError) as error:
        client.register_schema(SUBJECT, without_count)
    assert refused(error) == (409, 409)
    client.set_compatibility(SUBJECT, "NONE")
    client.register_schema(SUBJECT, without_count)
    client.register_schema(SUBJECT, avro(INCOMPATIBLE))
    assert client.get_versions(SUBJECT) == [1, 2, 3]
    client.delete_config(SUBJECT)
    with pytest.raises(SchemaRegistryError) as error:
        client.get_compatibility(SUBJECT)
    assert refused(error) == (404, 40408)
    client.set_compatibility(level="FORWARD")
    assert client.get_compatibility() == "FORWARD"
    with pytest.raises(SchemaRegistryError) as error:
        client.set_compatibility(SUBJECT, "SIDEWARD")
    assert refused(error) == (422, 42203)


def test_schemas_are_looked_up_by_content(
    client: SchemaRegistryClient, reader: SchemaRegistryClient
) -> None:
    first = client.register_schema("a/b value", avro(FIRST))
    assert client.register_schema("other", avro(FIRST)) == first
    second = client.register_schema("a/b value", avro(SECOND))
    found = reader.lookup_schema("a/b value", avro(SECOND))
    assert (found.schema_id, found.version, found.subject) == (second, 2, "a/b value")
    known = json.loads(str(reader.get_schema(first).schema_str))
    assert (known["namespace"], known["name"]) == ("rewind", "Event")
    assert known["fields"] == json.loads(FIRST)["fields"]
    assert reader.get_latest_version("a/b value").version == 2
    assert reader.get_version("a/b value", 1).schema_id == first
    assert reader.get_subjects() == ["a/b value", "other"]
    assert reader.get_subjects(subject_prefix="o") == ["other"]
    assert reader.get_subjects_by_schema_id(first) == ["a/b value", "other"]
    assert [(each.subject, each.version) for each in reader.get_schema_versions(first)] == [
        ("a/b value", 1),
        ("other", 1),
    ]
    assert reader.get_schema_types() == ["AVRO"]
    assert reader.get_contexts() == ["."]
    assert reader.get_global_mode() == "READWRITE"
    assert reader.get_mode("other") == "READWRITE"
    with pytest.raises(SchemaRegistryError) as error:
        reader.update_global_mode("READONLY")
    assert refused(error) == (422, 42205)
    for ask, code in (
        (lambda: reader.get_schema(99), 40403),
        (lambda: reader.get_latest_version("unknown"), 40401),
        (lambda: reader.get_version("other", 9), 40402),
        (lambda: reader.lookup_schema("other", avro(SECOND)), 40403),
        (lambda: reader.lookup_schema("unknown", avro(SECOND)), 40401),
    ):
        with pytest.raises(SchemaRegistryError) as error:
            ask()
        assert refused(error) == (404, code)


def test_versions_and_subjects_are_deleted_in_two_steps(
    registry: RegistryProcess, client: SchemaRegistryClient, reader: SchemaRegistryClient
) -> None:
    first = client.register_schema(SUBJECT, avro(FIRST))
    client.register_schema(SUBJECT, avro(SECOND))
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_version(SUBJECT, 1, permanent=True)
    assert refused(error) == (404, 40407)
    assert client.delete_version(SUBJECT, 1) == 1
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_version(SUBJECT, 1)
    assert refused(error) == (404, 40406)
    assert reader.get_versions(SUBJECT) == [2]
    # What was written with it is still read.
    assert reader.get_schema(first).schema_str is not None
    assert client.delete_subject(SUBJECT) == [2]
    assert reader.get_subjects() == []
    assert reader.get_subjects(deleted=True) == [SUBJECT]
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_subject("unknown")
    assert refused(error) == (404, 40401)
    assert registry.ask("DELETE", f"/subjects/{SUBJECT}?permanent=true").json() == [1, 2]
    assert reader.get_subjects(deleted=True) == []


def test_a_schema_may_refer_to_another(
    registry: RegistryProcess, client: SchemaRegistryClient, reader: SchemaRegistryClient
) -> None:
    place = record({"name": "city", "type": "string"}, name="rewind.Place")
    client.register_schema("place", avro(place))
    event = record(ID, {"name": "at", "type": "rewind.Place"})
    reference = SchemaReference("rewind.Place", "place", 1)
    schema = Schema(event, "AVRO", [reference])
    value = {"id": "a", "at": {"city": "Rome"}}
    written = AvroSerializer(client, schema)(value, context())
    assert AvroDeserializer(reader)(written, context()) == value
    found = registry.ask("GET", f"/subjects/{SUBJECT}/versions/1").json()
    assert found["references"] == [{"name": "rewind.Place", "subject": "place", "version": 1}]
    assert registry.ask("GET", "/subjects/place/versions/1/referencedby").json() == [found["id"]]
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_version("place", 1)
    assert refused(error) == (422, 42206)
    decoder = AvroDecoder(SchemaLookup(registry.url))
    assert json.loads(decoder.to_json(written)) == value
    decoder.close()


def test_serializers_that_register_nothing_use_what_is_there(
    client: SchemaRegistryClient,
) -> None:
    closed = {"auto.register.schemas": False}
    with pytest.raises(SchemaRegistryError) as error:
        AvroSerializer(client, FIRST, conf=closed)({"id": "a", "count": 1}, context())
    assert refused(error) == (404, 40401)
    client.register_schema(SUBJECT, avro(FIRST))
    client.register_schema(SUBJECT, avro(SECOND))
    known = AvroSerializer(client, FIRST, conf=closed)({"id": "a", "count": 1}, context())
    assert known[:5] == b"\0\0\0\0\1"
    latest = AvroSerializer(client, FIRST, conf={**closed, "use.latest.version": True})
    value = {"id": "a", "count": 1, "who": "me"}
    assert latest(value, context())[:5] == b"\0\0\0\0\2"
    normalizing = AvroSerializer(client, SECOND, conf={"normalize.schemas": True})
    assert normalizing(value, context())[:5] == b"\0\0\0\0\2"


def test_what_is_no_avro_schema_is_refused(client: SchemaRegistryClient) -> None:
    for schema in (
        avro("{"),
        avro('{"type":"record"}'),
        avro(record({"name": "x", "type": "gone.Type"})),
        Schema('{"type": "object"}', "JSON"),
        Schema('syntax = "proto3";', "PROTOBUF"),
        Schema(FIRST, "AVRO", [SchemaReference("x.Y", "nowhere", 1)]),
    ):
        with pytest.raises(SchemaRegistryError) as error:
            client.register_schema(SUBJECT, schema)
        assert refused(error) == (422, 42201)
    assert client.get_subjects() == []
