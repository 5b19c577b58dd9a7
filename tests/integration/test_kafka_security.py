"""The service on an Apache Kafka that lets in only whom it knows, with only the rights it needs."""

import itertools
import re
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from app.config import DAY_MS, Settings
from app.domain.accounts import Scope
from app.domain.model import OffsetRange, Window
from app.log.browser import BrowseQuery, LogBrowser
from app.log.errors import HistoryLost
from app.log.inspection import LogInspector
from app.log.reader import ReplayReader
from app.log.reader_clients import ReaderClients, reader_configuration
from app.log.topics import EVENTS, REPLAY_OUTCOMES, ensure_topics
from app.store import Store
from app.variables import kafka_variable
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.errors import FetchFailed
from logbroker.consumer.fetching import Fetcher, Message, StreamAssignment
from logbroker.registry.zookeeper.lease import SessionLease
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.apache_kafka import PASSWORDS, TEST_TIMEOUT_S, KafkaServer
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [
    pytest.mark.xdist_group("apache_kafka"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]

USER = "rewind"
UNAUDITED = "unaudited"
"""Who has all rights but those for the audit."""

OPERATORS = "operators"
"""Who has besides what operators need to see the log."""

OTHER = "elsewhere"
"""A topic, and a group, of somebody else."""

FETCHES = 100
"""Some seconds of them, until the client has asked for its group's coordinator."""

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"


@pytest.fixture(scope="module")
def kafka(secured_kafka: KafkaServer) -> KafkaServer:
    """A server with the topics, and with the rights that the operators' page asks for."""
    properties = secured_kafka.client_properties
    servers = properties.pop("bootstrap.servers")
    ensure_topics(
        servers,
        partitions=2,
        retention_ms=6 * DAY_MS,
        properties=properties,
        is_audited=True,
    )
    admin = AdminClient({**secured_kafka.client_properties})
    admin.create_topics([NewTopic(OTHER)])[OTHER].result(DEADLINE_S)
    rights = documented_rights()
    grant(secured_kafka, [*rights_of(OPERATORS, rights), *sights_of(OPERATORS)])
    grant(secured_kafka, rights_of(USER, rights))
    unaudited = [each for each in rights if each[1] != AUDIT_TOPIC]
    grant(secured_kafka, rights_of(UNAUDITED, unaudited))
    return secured_kafka


def documented_rights() -> list[tuple[str, str, str]]:
    """Kind, name and operations of each row of the page's table of rights."""
    row = r"^\| (topic|group) \| `([\w-]+)` \| ([\w, ]+) \|"
    return re.findall(row, PAGE.read_text(), re.MULTILINE)


def rights_of(user: str, rows: list[tuple[str, str, str]]) -> list[AclBinding]:
    return [
        AclBinding(
            ResourceType[kind.upper()],
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for kind, name, operations in rows
        for operation in operations.split(", ")
    ]


def sights_of(user: str) -> list[AclBinding]:
    """The rights that the page names for what operators see."""
    rows = re.findall(r"^\| (\w+) \| (topic|group|cluster)\b", PAGE.read_text(), re.MULTILINE)
    return [
        AclBinding(
            ResourceType.BROKER if kind == "cluster" else ResourceType[kind.upper()],
            "kafka-cluster" if kind == "cluster" else "*",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", operation).upper()],
            AclPermissionType.ALLOW,
        )
        for operation, kind in rows
    ]


def grant(server: KafkaServer, rights: list[AclBinding]) -> None:
    assert rights, "the page tells none"
    # An AdminClient without a reference is closed before its futures complete.
    admin = AdminClient({**server.client_properties})
    for granted in admin.create_acls(rights).values():
        granted.result(DEADLINE_S)


def variables(
    certificate: Path | None, password: str = PASSWORDS[USER], user: str = USER
) -> dict[str, str]:
    """What an operator gives the service to get in."""
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }
    if certificate is not None:
        properties["ssl.ca.location"] = str(certificate)
    environment = {kafka_variable(name): value for name, value in properties.items()}
    return environment | {"REWIND_ALLOW_PRIVATE_TARGETS": "true"}


@pytest.mark.parametrize("user", [USER, UNAUDITED])
def test_the_rights_on_the_page_are_all_that_the_service_needs(
    kafka: KafkaServer, tmp_path: Path, user: str
) -> None:
    """And those for the audit are all that it can do without."""
    database = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(database)
    with closing(Store.open(database)) as store:
        _, key = issue_key(store, "default", Scope.OPERATOR, "")
    environment = variables(kafka.certificate, PASSWORDS[user], user)
    environment |= {
        "REWIND_DATABASE": database,
        "REWIND_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
    }
    environment |= {"REWIND_PORT": "0"}
    with ExitStack() as stack:
        receiver = stack.enter_context(ReceiverThread())
        api, live, worker = servers = [
            stack.enter_context(
                ServerProcess(["-m", "app", name], tmp_path / f"{name}.log", environment)
            )
            for name in ("api", "live", "worker")
        ]
        url = api.start("rewind api ready on ")
        live.start("rewind live ready")
        worker.start("rewind worker ready")
        with httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=DEADLINE_S
        ) as client:
            check_live_and_replay(client, receiver)
        if user == UNAUDITED:
            until(
                lambda: any("audit-reports-refused" in each.output for each in servers),
                "it says so",
            )
        assert [each.stop() for each in reversed(servers)] == [0, 0, 0]
        lines = [line for each in servers for line in each.output.splitlines()]
        assert not [line for line in lines if PASSWORDS[user] in line]
        # Who has the right has nothing to say.
        words = ("topic-missing", "audit-reports-refused", "audit-reports-dropped", "outcomes-lost")
        warnings = [line for line in lines if any(word in line for word in words)]
        assert bool(warnings) == (user == UNAUDITED), warnings


def check_live_and_replay(api: httpx.Client, receiver: ReceiverThread) -> None:
    """Check that direct and matched events are delivered live and again by a replay."""
    webhook = api.post("/webhooks", json={"url": receiver.url}).raise_for_status().json()
    receiver.expect(webhook["secret"])
    rules = f"/webhooks/{webhook['id']}/rules"
    api.put(f"{rules}/all", json={"eventTypes": ["found.*"]}).raise_for_status()
    now = datetime.now(UTC)
    start = (now - timedelta(minutes=5)).isoformat()
    window = {"from": start, "to": now.isoformat()}

    publish(api, start, "evt_owed", "made", webhookId=webhook["id"])
    until(lambda: "evt_owed" in receiver.taken, "it came live")
    # A rule holds a moment later.
    numbers = itertools.count()

    def is_found() -> bool:
        if any(event_id.startswith("evt_found") for event_id in receiver.taken):
            return True
        publish(api, start, f"evt_found_{next(numbers)}", "found.one")
        return False

    until(is_found, "what a rule finds came live")
    asked = {"webhookId": webhook["id"], **window}
    replay = replayed(api, asked)
    again = [each.event_id for each in receiver.webhooks if each.replay_id == replay["id"]]
    assert "evt_owed" in again
    assert any(event_id.startswith("evt_found") for event_id in again)
    # What became of live deliveries is in a topic of its own, a moment later.
    until(
        lambda: replayed(api, asked | {"only": "failed"})["counts"]["delivered"] == 0,
        "all are known to be delivered",
    )


def publish(api: httpx.Client, time: str, event_id: str, kind: str, **more: str) -> None:
    event = {"id": event_id, "type": kind, "time": time, "data": {}}
    api.post("/events", json=event | more).raise_for_status()


def replayed(api: httpx.Client, asked: dict[str, str]) -> dict[str, Any]:
    """Ask for a replay, and wait for its end."""
    path = f"/replays/{api.post('/replays', json=asked).raise_for_status().json()['id']}"
    until(lambda: api.get(path).json()["state"] == "COMPLETED", "completed")
    ended: dict[str, Any] = api.get(path).json()
    return ended


@pytest.mark.parametrize(
    ("is_trusted", "password", "reason"),
    [
        (True, "not-the-word", "SASL authentication error"),
        (False, PASSWORDS[USER], "certificate verify failed"),
    ],
    ids=["password", "certificate"],
)
def test_who_is_not_let_in_says_why_and_shows_no_password(
    kafka: KafkaServer,
    tmp_path: Path,
    is_trusted: bool,
    password: str,
    reason: str,
) -> None:
    environment = variables(kafka.certificate if is_trusted else None, password)
    arguments = ["--bootstrap-servers", kafka.bootstrap_servers]
    arguments += ["--database", f"sqlite:///{tmp_path}/rewind.db"]
    with ServerProcess(
        ["-m", "app", "api", "--port", "0", *arguments], tmp_path / "api.log", environment
    ) as api:
        url = api.start("rewind api ready on ")
        assert "log" in httpx.get(f"{url}/readyz", timeout=DEADLINE_S).json()["unavailable"]
        api.until_says(reason)
        assert password not in api.output


def test_settings_that_the_client_refuses_end_the_command_with_the_reason(tmp_path: Path) -> None:
    environment = variables(None, "hunter2") | {
        "REWIND_KAFKA_ACKS": "1",
        "REWIND_KAFKA_SSL_CA": "/ca",
    }
    worker = ServerProcess(["-m", "app", "worker"], tmp_path / "worker.log", environment)
    worker.launch()
    assert worker.wait() == 2
    lines = [
        line for line in worker.output.splitlines() if line.startswith("rewind: REWIND_KAFKA_")
    ]
    assert [line.split(" ")[1] for line in lines] == ["REWIND_KAFKA_ACKS", "REWIND_KAFKA_SSL_CA"]
    assert "hunter2" not in worker.output


def test_operators_see_what_the_rights_on_the_page_allow(kafka: KafkaServer) -> None:
    write_and_commit(kafka)
    settings = settings_of(kafka, OPERATORS)
    inspector = LogInspector(settings, time_s_max=DEADLINE_S)
    browser = LogBrowser(settings, inspector.requests, time_s_max=DEADLINE_S)
    page = inspector.topics()
    assert page.gaps == ()
    events = next(each for each in page.topics if each.name == EVENTS)
    assert events.retention is not None
    assert events.bytes
    assert inspector.topic(EVENTS).gaps == ()
    assert inspector.groups(containing=OTHER).total == 1
    assert inspector.group(OTHER).gaps == ()
    assert browser.browse(BrowseQuery(REPLAY_OUTCOMES)).messages


def test_what_lacks_a_right_is_empty_and_says_why(kafka: KafkaServer) -> None:
    write_and_commit(kafka)
    settings = settings_of(kafka, USER)
    inspector = LogInspector(settings, time_s_max=DEADLINE_S)
    browser = LogBrowser(settings, inspector.requests, time_s_max=DEADLINE_S)
    page = inspector.topics()
    assert OTHER not in {each.name for each in page.topics}
    events = next(each for each in page.topics if each.name == EVENTS)
    assert (events.bytes, events.retention) == (None, None)
    assert events.messages
    refused = {gap.figure: gap.reason.lower() for gap in page.gaps}
    assert refused.keys() == {"bytes", "retention"}
    assert all("authorization" in reason for reason in refused.values()), refused
    assert inspector.groups(containing=OTHER).groups == ()
    hidden = inspector.group(OTHER)
    assert (hidden.group.state, hidden.group.lag) == (None, None)
    assert {gap.figure for gap in hidden.gaps} == {"state", "committed"}
    assert {gap.figure for gap in inspector.topic(OTHER).gaps} == {"partitions"}
    # The service writes the second, and may not read it.
    for topic in (OTHER, REPLAY_OUTCOMES):
        found = browser.browse(BrowseQuery(topic))
        assert (found.messages, [gap.figure for gap in found.gaps]) == ((), ["messages"])
    # A page may lack what a broker did not answer in time, and says so: the next one has it.
    until(lambda: browser.browse(BrowseQuery(EVENTS)).messages, "the messages are shown")


def test_who_reads_without_a_group_needs_no_right_to_any(kafka: KafkaServer) -> None:
    """The client looks for its coordinator all the same, and is refused sooner or later."""
    settings = settings_of(kafka, USER)
    write_and_commit(kafka)
    with closing(reader_behind_the_end(kafka, settings)) as reader, pytest.raises(HistoryLost):
        read_all(reader)
    fetcher = Fetcher(reader_configuration(kafka.bootstrap_servers, settings.kafka_properties))
    with closing(fetcher):
        share = StreamAssignment(EVENTS, {0: 0}, SessionLease(1, DEADLINE_S, sent_s=0.0))
        fetched = list(itertools.chain(*(fetcher.fetch(share) for _ in range(FETCHES))))
    assert [each for each in fetched if isinstance(each, Message)]
    assert not [each for each in fetched if isinstance(each, FetchFailed)]


def read_all(reader: ReplayReader) -> None:
    while not reader.is_done:
        reader.read()


def reader_behind_the_end(kafka: KafkaServer, settings: Settings) -> ReplayReader:
    with closing(Consumer(kafka.client_properties | {"group.id": OTHER})) as consumer:
        ends = consumer.get_watermark_offsets(TopicPartition(EVENTS, 0), DEADLINE_S, cached=False)
    assert ends is not None
    return ReplayReader(
        ReaderClients(settings.bootstrap_servers, settings.kafka_properties),
        EVENTS,
        OffsetRange(0, ends[1], ends[1] + 1),
        key=b"",
        window=Window(0, 2**62),
        stall_s=1.0,
    )


def settings_of(kafka: KafkaServer, user: str) -> Settings:
    environment = variables(kafka.certificate, PASSWORDS[user], user)
    return Settings.load(environment, bootstrap_servers=kafka.bootstrap_servers)


def write_and_commit(kafka: KafkaServer) -> None:
    """Write a record to some topics, one without permissions, and commit a group's offset."""
    properties = kafka.client_properties
    producer = Producer(properties)
    for topic in (EVENTS, REPLAY_OUTCOMES):
        producer.produce(topic, b"{}", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    with closing(Consumer(properties | {"group.id": OTHER})) as consumer:
        consumer.commit(offsets=[TopicPartition(EVENTS, 0, 0)], asynchronous=False)
