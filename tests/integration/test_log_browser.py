"""The log browser reads messages of logbroker and of Apache Kafka."""

import itertools
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from app.config import Settings
from app.log.browser import BrowseQuery, LogBrowser, Message, MessageOrder, MessagePage
from app.log.browser.browser import BYTES_MAX
from app.log.browser.content import VALUE_BYTES_MAX
from app.log.browser.message import PartitionSpan
from app.log.errors import BrowseRefused, InspectionsBusy, NotInLog
from app.log.inspection import LogInspector
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.written_log import Sent, WrittenLog
from tests.support.processes.waiting import DEADLINE_S
from tests.support.schemas.registry_process import RegistryProcess

TIME_MS = 1_763_712_000_000
MEGABYTE = 10**6

_names = itertools.count(1)


@pytest.fixture(
    params=[
        "broker",
        pytest.param(
            "apache_kafka",
            marks=[
                pytest.mark.long,
                pytest.mark.xdist_group("apache_kafka"),
                pytest.mark.timeout(TEST_TIMEOUT_S),
            ],
        ),
    ]
)
def server(request: pytest.FixtureRequest) -> BrokerProcess | KafkaServer:
    found: BrokerProcess | KafkaServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def log(server: BrokerProcess | KafkaServer) -> WrittenLog:
    return WrittenLog(server.bootstrap_servers)


@pytest.fixture
def browser(log: WrittenLog) -> Iterator[LogBrowser]:
    with closing(browser_of(log.bootstrap_servers)) as browser:
        yield browser


def browser_of(servers: str, bytes_max: int = BYTES_MAX, **settings: Any) -> LogBrowser:
    taken = Settings.model_validate({"bootstrap_servers": servers, **settings})
    questions = LogInspector(taken).requests
    return LogBrowser(taken, questions, time_s_max=DEADLINE_S, bytes_max=bytes_max)


@pytest.fixture
def topic(log: WrittenLog) -> str:
    """Three partitions; numbers from 0 to 19 in two of them, one a millisecond."""
    name = f"browsed-{next(_names)}"
    log.make_topic(name, 3)
    log.publish(
        name,
        [Sent(b"%d" % n, partition=number_of(n), timestamp=TIME_MS + n) for n in range(20)],
        linger_ms="20",
    )
    return name


def number_of(n: int) -> int:
    """Every fourth lies in the last partition, all others in the first."""
    return 0 if n % 4 else 2


def values(page: MessagePage) -> list[int]:
    assert page.gaps == ()
    return [int(text_of(message)) for message in page.messages]


def text_of(message: Message) -> str:
    assert message.value is not None
    assert message.value.text is not None
    return message.value.text


def pages(browser: LogBrowser, question: BrowseQuery) -> list[list[int]]:
    """What the pages show, one behind the other."""
    found: list[list[int]] = []
    page = browser.browse(question)
    while True:
        found.append(values(page))
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor
        page = browser.browse(BrowseQuery(question.topic, cursor=cursor, limit=question.limit))


def test_pages_lead_from_the_newest_message_to_the_oldest(browser: LogBrowser, topic: str) -> None:
    found = pages(browser, BrowseQuery(topic, limit=8))
    assert found == [list(range(19, 11, -1)), list(range(11, 3, -1)), list(range(3, -1, -1))]


def test_pages_lead_from_the_oldest_message_to_the_newest(browser: LogBrowser, topic: str) -> None:
    found = pages(browser, BrowseQuery(topic, order=MessageOrder.OLDEST, limit=8))
    assert found == [list(range(8)), list(range(8, 16)), list(range(16, 20))]


@pytest.mark.parametrize("order", list(MessageOrder))
def test_a_page_leads_back_to_the_one_before(
    browser: LogBrowser, topic: str, order: MessageOrder
) -> None:
    first = browser.browse(BrowseQuery(topic, order=order, limit=8))
    assert first.previous_cursor is None
    second = browser.browse(BrowseQuery(topic, cursor=first.next_cursor, limit=8))
    back = browser.browse(BrowseQuery(topic, cursor=second.previous_cursor, limit=8))
    assert back.messages == first.messages
    assert back.previous_cursor is None
    forth = browser.browse(BrowseQuery(topic, cursor=back.next_cursor, limit=8))
    assert forth.messages == second.messages


def test_what_came_meanwhile_is_before_the_newest(
    browser: LogBrowser, log: WrittenLog, topic: str
) -> None:
    first = browser.browse(BrowseQuery(topic, limit=8))
    second = browser.browse(BrowseQuery(topic, cursor=first.next_cursor, limit=8))
    log.publish(topic, [Sent(b"20", partition=1, timestamp=TIME_MS + 20)])
    back = browser.browse(BrowseQuery(topic, cursor=second.previous_cursor, limit=8))
    assert values(back) == values(first)
    assert back.previous_cursor is not None
    newest = browser.browse(BrowseQuery(topic, cursor=back.previous_cursor, limit=8))
    assert values(newest) == [20]


def test_one_partition_is_looked_through_from_an_offset(browser: LogBrowser, topic: str) -> None:
    def at(offset: int, order: MessageOrder) -> list[int]:
        question = BrowseQuery(topic, partition=2, offset=offset, order=order, limit=3)
        return values(browser.browse(question))

    assert at(1, MessageOrder.OLDEST) == [4, 8, 12]
    assert at(1, MessageOrder.NEWEST) == [4, 0]
    page = browser.browse(BrowseQuery(topic, partition=2, offset=4))
    assert [(each.partition, each.offset) for each in page.messages[:2]] == [(2, 4), (2, 3)]
    assert page.spans == (PartitionSpan(2, 0, 5),)


def test_a_page_from_a_time_starts_at_the_first_message_not_older(
    browser: LogBrowser, topic: str
) -> None:
    def at(time_ms: int, order: MessageOrder) -> list[int]:
        question = BrowseQuery(topic, time_ms=time_ms, order=order, limit=4)
        return values(browser.browse(question))

    assert at(TIME_MS + 7, MessageOrder.OLDEST) == [7, 8, 9, 10]
    assert at(TIME_MS + 7, MessageOrder.NEWEST) == [6, 5, 4, 3]
    assert at(0, MessageOrder.OLDEST) == [0, 1, 2, 3]
    assert at(TIME_MS + 100, MessageOrder.OLDEST) == []
    assert at(TIME_MS + 100, MessageOrder.NEWEST) == [19, 18, 17, 16]


def test_a_message_is_shown_whole(browser: LogBrowser, log: WrittenLog) -> None:
    topic = f"browsed-{next(_names)}"
    log.make_topic(topic)
    headers = (("trace", b"1"), ("trace", None), ("\u00e4", b"\xff"))
    log.publish(
        topic,
        [
            Sent(b'{"a":1}', b"key", timestamp=TIME_MS, headers=headers),
            Sent(None, b"", timestamp=TIME_MS),
            Sent(b"\xff" * (VALUE_BYTES_MAX + 1), None, timestamp=TIME_MS),
            Sent(b"\0\0\0\0\7\2", timestamp=TIME_MS),
        ],
    )
    page = browser.browse(BrowseQuery(topic, order=MessageOrder.OLDEST))
    whole, empty, long, framed = page.messages
    assert (whole.offset, whole.time_ms, whole.is_append_time) == (0, TIME_MS, False)
    assert text_of(whole) == '{\n  "a": 1\n}'
    assert whole.key is not None
    assert whole.key.text == "key"
    assert whole.headers is not None
    shown = [(each.name, None if each.value is None else each.value.raw) for each in whole.headers]
    assert shown == list(headers)
    assert whole.headers_count == 3
    assert (empty.value, empty.headers) == (None, ())
    assert empty.key is not None
    assert empty.key.size == 0
    assert long.key is None
    assert long.value is not None
    assert (long.value.size, long.value.is_cut) == (VALUE_BYTES_MAX + 1, True)
    assert long.value.raw == b"\xff" * VALUE_BYTES_MAX
    assert framed.value is not None
    assert (framed.value.schema_id, framed.value.text) == (7, None)
    assert framed.value.note == "no schema registry is set: REWIND_SCHEMA_REGISTRY"


def test_an_empty_topic_has_an_empty_page(browser: LogBrowser, log: WrittenLog) -> None:
    topic = f"browsed-{next(_names)}"
    log.make_topic(topic, 2)
    for order in MessageOrder:
        page = browser.browse(BrowseQuery(topic, order=order))
        assert values(page) == []
        assert (page.next_cursor, page.previous_cursor) == (None, None)


def test_deleted_messages_are_skipped(browser: LogBrowser, log: WrittenLog, topic: str) -> None:
    before = browser.browse(BrowseQuery(topic, order=MessageOrder.OLDEST, limit=4))
    log.delete_before(topic, 0, 10)
    page = browser.browse(BrowseQuery(topic, cursor=before.next_cursor, limit=4))
    assert values(page) == [4, 8, 12, 14]
    assert values(browser.browse(BrowseQuery(topic, order=MessageOrder.OLDEST, limit=2))) == [0, 4]
    assert len(pages(browser, BrowseQuery(topic, limit=50))[0]) == 10
    log.delete_before(topic, 0, 15)
    page = browser.browse(BrowseQuery(topic, partition=0))
    assert values(page) == []
    assert page.next_cursor is None


@pytest.mark.parametrize(
    ("question", "field", "allowed"),
    [
        ({"partition": 3}, "partition", "0 to 2, the partitions of topic"),
        ({"partition": 0, "offset": 15}, "offset", "0 to 14, the offsets of partition 0"),
        ({"partition": 1, "offset": 0}, "offset", "none: partition 1 is empty"),
        ({"offset": 0}, "partition", "required with an offset"),
        ({"partition": 0, "offset": 0, "time_ms": 0}, "time", "none with an offset"),
        ({"cursor": "nd.0-5", "partition": 0}, "partition", "none with a cursor"),
        ({"cursor": "nd.0-5.3-1"}, "cursor", "one with partitions 0 to 2"),
        ({"cursor": "sideways"}, "cursor", "a cursor of a page of this topic"),
        ({"cursor": "nd" + ".0-1" * 2_000}, "cursor", "a cursor of a page"),
    ],
)
def test_an_invalid_page_is_rejected_with_the_allowed_values(
    browser: LogBrowser, topic: str, question: dict[str, Any], field: str, allowed: str
) -> None:
    with pytest.raises(BrowseRefused) as refused:
        browser.browse(BrowseQuery(topic, **question))
    assert refused.value.field == field
    assert refused.value.allowed.startswith(allowed)


def test_a_missing_topic_is_reported(browser: LogBrowser) -> None:
    with pytest.raises(NotInLog):
        browser.browse(BrowseQuery("nowhere"))


def test_of_many_partitions_one_is_read_at_a_time(broker: BrokerProcess) -> None:
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic("wide", 101)
    log.publish("wide", [Sent(b"1", partition=100)])
    with closing(browser_of(broker.bootstrap_servers)) as browser:
        with pytest.raises(BrowseRefused, match="up to 100 are read together"):
            browser.browse(BrowseQuery("wide"))
        assert values(browser.browse(BrowseQuery("wide", partition=100))) == [1]


def test_large_messages_make_short_pages_and_none_is_left_out(broker: BrokerProcess) -> None:
    """However large they are: a page has one message at least."""
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic("large", max_message_bytes=str(20 * MEGABYTE))
    sent = [MEGABYTE] * 9 + [12 * MEGABYTE] * 2
    log.publish("large", [Sent(b"\xff" * size) for size in sent], message_max_bytes=str(10**8))
    for order, wanted in ((MessageOrder.OLDEST, sent), (MessageOrder.NEWEST, sent[::-1])):
        with closing(browser_of(broker.bootstrap_servers, 4 * MEGABYTE)) as browser:
            page = browser.browse(BrowseQuery("large", order=order))
            assert [gap.figure for gap in page.gaps] == ["messages"]
            sizes = sizes_of(page)
            while page.next_cursor is not None:
                page = browser.browse(BrowseQuery("large", cursor=page.next_cursor))
                assert page.messages
                sizes += sizes_of(page)
            assert sizes == wanted


def sizes_of(page: MessagePage) -> list[int]:
    return [message.value.size for message in page.messages if message.value is not None]


def test_avro_is_decoded_with_the_registry_and_noted_without_it(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic("events")
    fields = [{"name": "id", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "Event", "fields": fields})
    with RegistryProcess(tmp_path, broker.bootstrap_servers) as registry:
        registry.serve()
        context = SerializationContext("events", MessageField.VALUE)
        with SchemaRegistryClient({"url": registry.url}) as client:
            value = AvroSerializer(client, schema)({"id": "evt_1"}, context)
        log.publish("events", [Sent(value), Sent(b"\0\0\0\x03\xe7rest")])
        browser = browser_of(broker.bootstrap_servers, schema_registry=registry.url)
        with closing(browser):
            unknown, event = browser.browse(BrowseQuery("events")).messages
            assert event.value is not None
            assert (event.value.format, event.value.schema_id) == ("avro", 1)
            assert text_of(event) == '{\n  "id": "evt_1"\n}'
            assert unknown.value is not None
            assert (unknown.value.format, unknown.value.schema_id) == ("binary", 999)
            assert "999" in (unknown.value.note or "")
            registry.kill()
            # The schema is cached.
            known = browser.browse(BrowseQuery("events", limit=1, order=MessageOrder.OLDEST))
            assert known.messages == (event,)
    with closing(browser_of(broker.bootstrap_servers, schema_registry=registry.url)) as browser:
        page = browser.browse(BrowseQuery("events"))
    for message, schema_id in zip(page.messages, (999, 1), strict=True):
        assert message.value is not None
        assert (message.value.format, message.value.schema_id) == ("binary", schema_id)
        assert message.value.note


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_control_records_and_aborted_messages_are_skipped(apache_kafka: KafkaServer) -> None:
    """Marks of their ends, and records of those that were aborted or are open still."""
    topic = f"browsed-{next(_names)}"
    log = WrittenLog(apache_kafka.bootstrap_servers)
    log.make_topic(topic)
    producer = transactional_producer(apache_kafka, topic)
    wanted: list[int] = []
    for number in range(20):
        begin(producer, topic, number)
        if number % 3:
            producer.abort_transaction(DEADLINE_S)
        else:
            wanted.append(number)
            producer.commit_transaction(DEADLINE_S)
    begin(producer, topic, 20)
    with closing(browser_of(apache_kafka.bootstrap_servers)) as browser:
        found = pages(browser, BrowseQuery(topic, limit=4))
        assert list(itertools.chain(*found)) == wanted[::-1]
        found = pages(browser, BrowseQuery(topic, order=MessageOrder.OLDEST, limit=4))
        assert list(itertools.chain(*found)) == wanted
    producer.abort_transaction(DEADLINE_S)


def transactional_producer(server: KafkaServer, topic: str) -> Producer:
    settings = {"transactional.id": topic, "bootstrap.servers": server.bootstrap_servers}
    producer = Producer(settings)
    producer.init_transactions(DEADLINE_S)
    return producer


def begin(producer: Producer, topic: str, number: int) -> None:
    """A transaction whose record is in the log."""
    producer.begin_transaction()
    producer.produce(topic, b"%d" % number, timestamp=TIME_MS + number)
    assert producer.flush(DEADLINE_S) == 0


def test_no_more_pages_than_may_be_are_read_at_a_time(broker: BrokerProcess) -> None:
    log = WrittenLog(broker.bootstrap_servers)
    log.make_topic("clicks")
    settings = Settings(bootstrap_servers=broker.bootstrap_servers)
    with closing(LogBrowser(settings, LogInspector(settings).requests, at_a_time=1)) as browser:
        with browser._slots, pytest.raises(InspectionsBusy):
            browser.browse(BrowseQuery("clicks"))
        assert browser.browse(BrowseQuery("clicks")).messages == ()
