"""The registry's log on brokers that are killed, cut off, replaced, and shared by registries."""

import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from logbroker.errors import ConfigurationError
from logbroker.schemas.avro.schema_text import SchemaText
from logbroker.schemas.domain.log_records import Decided, LevelSet, encode
from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.domain.state import Outcome
from logbroker.schemas.errors import LogReplaced, StoreFailed, StoreUnavailable
from logbroker.schemas.journal import SCHEMAS_TOPIC, SchemaJournal
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S, until

INT = SchemaText('"int"')
LONG = SchemaText('"long"')
FOR_EVER = {"retention_ms": "-1", "retention_bytes": "-1"}


def text(number: int) -> SchemaText:
    return SchemaText(f'{{"type":"fixed","name":"F","size":{number}}}')


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that may be killed and harmed."""
    with BrokerProcess(tmp_path / "log") as broker:
        yield broker.serve()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def read_to_end(opened: ExitStack, servers: str, **options: object) -> SchemaJournal:
    journal = opened.enter_context(SchemaJournal(servers, **options))  # type: ignore[arg-type]
    assert journal.wait_until_ready(DEADLINE_S)
    return journal


def registry_at(opened: ExitStack, servers: str, **options: object) -> SchemaRegistry:
    return SchemaRegistry(read_to_end(opened, servers, **options))


def everything(registry: SchemaRegistry) -> object:
    subjects = registry.subjects(deleted="also")
    return {
        subject: [registry.version(subject, version, with_deleted=True) for version in versions]
        for subject in subjects
        if (versions := registry.versions(subject, with_deleted=True))
    }


def settings_of(servers: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    return {name: entry.value for name, entry in described.items()}


def delete_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([SCHEMAS_TOPIC])[SCHEMAS_TOPIC].result(DEADLINE_S)
    until(lambda: SCHEMAS_TOPIC not in admin.list_topics(timeout=DEADLINE_S).topics, "no topic")


def live_through(servers: str, topic: str, opened: ExitStack) -> None:
    """Two registries at once, then a third that starts on what they left."""
    first, second = (registry_at(opened, servers, topic=topic) for _ in range(2))
    ids = [registry.register("s", INT).id for registry in (first, second)]
    assert ids == [1, 1]
    assert second.register("s", LONG).version == 2
    assert first.schema(2) == LONG
    first.delete_version("s", 1)
    first.register("t", INT)
    third = registry_at(opened, servers, topic=topic)
    assert everything(third) == everything(first)
    assert third.versions("s") == [2]
    assert third.versions("s", with_deleted=True) == [1, 2]
    settings = settings_of(servers, topic)
    assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")


def test_a_registry_lives_in_the_log(own_broker: BrokerProcess, opened: ExitStack) -> None:
    live_through(own_broker.bootstrap_servers, SCHEMAS_TOPIC, opened)


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_a_registry_lives_in_apache_kafkas_log(
    apache_kafka: KafkaServer, opened: ExitStack
) -> None:
    topic = f"schemas-{uuid.uuid4().hex}"  # others use this server, too
    live_through(apache_kafka.bootstrap_servers, topic, opened)
    assert settings_of(apache_kafka.bootstrap_servers, topic)["cleanup.policy"] == "delete"


def test_registries_that_write_at_once_give_dense_ids(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    servers = own_broker.bootstrap_servers
    registries = [registry_at(opened, servers) for _ in range(3)]
    with ThreadPoolExecutor(6) as threads:
        # Each schema at two registries at once, in a subject of its own.
        asked = [(registries[(n + twin) % 3], n) for n in range(1, 9) for twin in range(2)]
        ids = list(threads.map(lambda each: each[0].register(f"s{each[1]}", text(each[1])), asked))
    assert {(each.subject, each.id) for each in ids} == {
        (each.subject, each.id) for each in ids[::2]
    }
    assert sorted({each.id for each in ids}) == list(range(1, 9))
    for registry in registries:
        assert [registry.schema(each.id) for each in ids] == [each.schema for each in ids]


def test_a_broker_killed_midway_loses_and_repeats_nothing(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    registry = registry_at(opened, own_broker.bootstrap_servers)
    given: dict[int, int] = {}

    def register(number: int) -> None:
        while number not in given:
            try:
                given[number] = registry.register(f"s{number}", text(number)).id
            except StoreFailed:
                continue

    with ThreadPoolExecutor(1) as threads:
        registering = threads.submit(lambda: list(map(register, range(1, 25))))
        for many in (5, 12):

            def are_registered(many: int = many) -> bool:
                return len(given) >= many

            until(are_registered, "some are registered")
            own_broker.kill()
            own_broker.serve()
        registering.result(DEADLINE_S)
    assert sorted(given.values()) == list(range(1, 25))
    after = registry_at(opened, own_broker.bootstrap_servers)
    assert {number: after.version(f"s{number}").id for number in given} == given
    assert all(after.versions(f"s{number}") == [1] for number in given)


def test_without_the_log_reads_work_and_writes_fail(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    registry_at(opened, own_broker.bootstrap_servers).register("s", INT)
    registry = registry_at(opened, own_broker.bootstrap_servers, timeout_s=2.0)
    own_broker.kill()
    with pytest.raises(StoreUnavailable):
        registry.register("s", LONG)
    # Somebody else may know this id; only the log could tell.
    with pytest.raises(StoreUnavailable):
        registry.schema(2)
    assert registry.schema(1) == INT
    assert registry.register("s", INT).id == 1
    own_broker.serve()

    def is_registered() -> bool:
        try:
            return registry.register("s", LONG).id == 2
        except StoreFailed:
            return False

    until(is_registered, "the log is back")
    assert registry.versions("s") == [1, 2]


def test_an_acknowledgement_that_is_lost_registers_once(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    """A client that gets no response retries, so the record is written twice."""
    servers = own_broker.bootstrap_servers
    journal = read_to_end(opened, servers)
    registry = SchemaRegistry(journal)
    registry.register("s", INT)
    with journal.reading() as state:
        decided = Decided(LevelSet("s", None), state.last)
    key, value = encode(decided)
    producer = Producer({"bootstrap.servers": servers})
    for _ in range(2):
        producer.produce(SCHEMAS_TOPIC, value, key, 0)
    assert producer.flush(DEADLINE_S) == 0
    assert registry.register("s", LONG).id == 2
    with journal.reading() as state:
        assert state.skipped == {Outcome.REPEAT: 1}
    assert not journal.append(decided)


def test_a_registry_that_starts_before_the_log_waits_for_it(
    tmp_path: Path, opened: ExitStack
) -> None:
    broker = opened.enter_context(BrokerProcess(tmp_path / "log")).serve()
    broker.kill()
    journal = opened.enter_context(SchemaJournal(broker.bootstrap_servers, timeout_s=2.0))
    registry = SchemaRegistry(journal)
    assert not journal.wait_until_ready(0.5)
    with pytest.raises(StoreUnavailable, match="not read to its end yet"):
        registry.subjects()
    broker.serve()
    assert journal.wait_until_ready(DEADLINE_S)
    assert registry.register("s", INT).id == 1


def test_a_large_schema_goes_through_the_log(own_broker: BrokerProcess, opened: ExitStack) -> None:
    doc = '\\"' * 400_000
    large = SchemaText(f'{{"type":"fixed","name":"F","size":1,"doc":"{doc}"}}')
    registered = registry_at(opened, own_broker.bootstrap_servers).register("s", large)
    other = registry_at(opened, own_broker.bootstrap_servers)
    assert other.schema(1) == registered.schema
    assert len(registered.schema.text) > 800_000


@pytest.mark.parametrize(
    ("partitions", "settings", "problem"),
    [
        (3, FOR_EVER, "'_schemas' has 3 partitions"),
        (1, {}, "retention.ms is 604800000 and must be -1"),
        (1, FOR_EVER | {"retention_bytes": "1000000"}, "retention.bytes is 1000000"),
    ],
)
def test_an_unsuitable_schemas_topic_is_rejected(
    own_broker: BrokerProcess, partitions: int, settings: dict[str, str], problem: str
) -> None:
    own_broker.make_topic(SCHEMAS_TOPIC, partitions, **settings)
    with SchemaJournal(own_broker.bootstrap_servers) as journal:
        with pytest.raises(ConfigurationError, match=problem):
            journal.wait_until_ready(DEADLINE_S)
        assert isinstance(journal.wait_until_over(DEADLINE_S), ConfigurationError)
        with pytest.raises(StoreUnavailable, match=problem):
            SchemaRegistry(journal).subjects()


def test_a_client_setting_that_there_is_not_is_refused() -> None:
    with (
        SchemaJournal("127.0.0.1:1", properties={"no.such": "1"}) as journal,
        pytest.raises(ConfigurationError, match=r"no\.such"),
    ):
        journal.wait_until_ready(DEADLINE_S)


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_a_compacted_topic_is_refused(apache_kafka: KafkaServer) -> None:
    topic = f"schemas-{uuid.uuid4().hex}"
    config = {"cleanup.policy": "compact", "retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": apache_kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(DEADLINE_S)
    with (
        SchemaJournal(apache_kafka.bootstrap_servers, topic=topic) as journal,
        pytest.raises(ConfigurationError, match=r"cleanup\.policy is compact and must be delete"),
    ):
        journal.wait_until_ready(DEADLINE_S)


def registered(opened: ExitStack, servers: str, *numbers: int) -> SchemaRegistry:
    registry = registry_at(opened, servers)
    for number in numbers:
        registry.register(f"s{number}", text(number))
    return registry


def expect_refusal(
    registry: SchemaRegistry, journal: SchemaJournal, reason: str = "was cut or replaced"
) -> None:
    """Found by itself, without anybody asking; from then on nothing is answered."""
    failure = journal.wait_until_over(DEADLINE_S)
    assert isinstance(failure, LogReplaced)
    assert reason in str(failure)
    for ask in (registry.subjects, lambda: registry.schema(1), lambda: registry.register("x", INT)):
        with pytest.raises(LogReplaced):
            ask()


def test_a_log_that_was_replaced_by_a_shorter_one_is_noticed(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    servers = own_broker.bootstrap_servers
    journal = read_to_end(opened, servers)
    registry = SchemaRegistry(journal)
    for number in (1, 2):
        registry.register(f"s{number}", text(number))
    delete_topic(servers)
    registered(opened, servers, 3)
    expect_refusal(registry, journal)


def test_a_log_that_was_replaced_by_a_longer_one_is_noticed(
    own_broker: BrokerProcess, tmp_path: Path, opened: ExitStack
) -> None:
    """A folder is put in the place of another: there are records at all offsets that were read."""
    with BrokerProcess(tmp_path / "other", name="other") as other, ExitStack() as there:
        registered(there, other.serve().bootstrap_servers, 2, 3)
    journal = read_to_end(opened, own_broker.bootstrap_servers)
    registry = SchemaRegistry(journal)
    registry.register("s1", text(1))
    own_broker.kill()
    shutil.rmtree(own_broker.data_dir)
    other.data_dir.rename(own_broker.data_dir)
    own_broker.serve()
    expect_refusal(registry, journal, "the record at offset 0 differs")


def test_a_log_whose_data_went_with_its_broker_is_noticed(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    servers = own_broker.bootstrap_servers
    journal = read_to_end(opened, servers)
    registry = SchemaRegistry(journal)
    registry.register("s1", text(1))
    own_broker.kill()
    shutil.rmtree(own_broker.data_dir)
    own_broker.serve()
    own_broker.make_topic(SCHEMAS_TOPIC, 1, **FOR_EVER)
    expect_refusal(registry, journal)


def test_a_log_that_lost_its_beginning_is_no_log_to_start_from(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    servers = own_broker.bootstrap_servers
    registered(opened, servers, 1, 2)
    lose_beginning(servers, 1)
    with SchemaJournal(servers) as journal, pytest.raises(LogReplaced, match="begins at offset 1"):
        journal.wait_until_ready(DEADLINE_S)


def lose_beginning(servers: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    place = TopicPartition(SCHEMAS_TOPIC, 0, before)
    admin.delete_records([place])[place].result(DEADLINE_S)


def test_foreign_records_in_the_topic_are_skipped(
    own_broker: BrokerProcess, opened: ExitStack
) -> None:
    servers = own_broker.bootstrap_servers
    registry = registered(opened, servers, 1)
    producer = Producer({"bootstrap.servers": servers})
    for value in (None, b"", b"{}", b"\xff"):
        producer.produce(SCHEMAS_TOPIC, value, b'{"keytype":"NOOP","magic":0}', 0)
    assert producer.flush(DEADLINE_S) == 0
    assert registry.register("s2", text(2)).id == 2
    assert everything(registry_at(opened, servers)) == everything(registry)


def test_a_broker_that_falls_silent_is_no_broker(
    own_broker: BrokerProcess, opened: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    """Writes are refused or unsettled, and settled once the broker speaks again."""
    registry = registry_at(opened, own_broker.bootstrap_servers, timeout_s=2.0)
    own_broker.pause()
    try:
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(registry.register, "s", INT) for _ in range(4)]
    finally:
        own_broker.resume()
    for each in asked:
        with pytest.raises(StoreFailed):
            each.result()
    # Else each would have waited as long as all before it.
    assert caplog.text.count("_schemas is not read to its end") < 4

    def is_registered() -> bool:
        try:
            return registry.register("s", INT).id == 1
        except StoreFailed:
            return False

    until(is_registered, "the broker speaks again")
    assert registry.versions("s") == [1]
