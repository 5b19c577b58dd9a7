"""The log pages of the console, with a real broker."""

from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from fastapi import FastAPI

from app.api.application import create_app
from app.config import Settings
from app.domain.accounts import Scope
from app.domain.log_samples import (
    ALL_TOPICS,
    LogSample,
    SampleSpan,
    Series,
    SeriesKind,
)
from app.domain.pipeline import PipelineRun, RunOutcome
from app.domain.processes import ProcessKind
from app.log.history import LogHistory
from app.log.inspection import LogInspector
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_ATTEMPTS, DELIVERY_LOG, DELIVERY_OUTCOMES
from app.services.log_sampler import LogSampler
from app.services.metrics import ApiMetrics
from app.services.services import Services, open_services
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from logbroker.client.partitioner import partition_for_key
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.console_clients import ConsoleClient, enabled_webhook
from tests.support.http.html_page import HtmlPage
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.committed_offsets import commit_offsets
from tests.support.processes.waiting import DEADLINE_S, until, until_async

pytestmark = pytest.mark.anyio

TIME_MS = 1_763_769_600_000  # 2025-11-22T00:00:00Z
MINUTE_MS = 60_000
RANGE = ".//section[@aria-labelledby='range']"
HOSTILE = "<script>alert('log')</script>"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path, broker: BrokerProcess) -> Settings:
    broker.make_topic(DELIVERY_LOG, 2, retention_ms="86400000")
    return Settings(data_dir=tmp_path, bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    make_migrated(settings.database)
    with closing(Store.open(settings.database)) as store:
        yield store


@pytest.fixture
async def application(settings: Settings, store: Store) -> AsyncIterator[FastAPI]:
    guard = Guard(allow_private=True)
    history = LogHistory(settings.bootstrap_servers)
    publisher = EventPublisher.of(settings, topics_timeout_s=5.0)
    async with publisher, WebhookSender(guard) as sender:
        yield create_app(
            Services.of(settings, store, publisher, history, guard, sender, ApiMetrics())
        )


@pytest.fixture
async def client(application: FastAPI, store: Store) -> AsyncIterator[ConsoleClient]:
    issued = issue_key(store, "platform", Scope.OPERATOR, "")
    async with ConsoleClient(application, issued) as client:
        yield client


@pytest.fixture
def written(settings: Settings, broker: BrokerProcess) -> None:
    """Write JSON, text and bytes with a header to one partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    values = [b'{"id": "evt_1", "data": {"html": "%s"}}' % HOSTILE.encode(), b"plain", b"\xff\x00"]
    for number, value in enumerate(values):
        producer.produce(
            DELIVERY_LOG,
            value,
            b"wh_1",
            partition=1,
            timestamp=TIME_MS + number * 1_000,
            headers=[("event-id", HOSTILE.encode())],
        )
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.usefixtures("written")
async def test_topics_and_partitions_have_size_offsets_and_times(
    client: ConsoleClient,
) -> None:
    topics = await client.whole("/console/log", containing="delivery")
    cells = topics.texts(f".//tr[th='{DELIVERY_LOG}']/*")
    assert cells[:3] == [DELIVERY_LOG, "2", "3"]
    assert cells[4:6] == ["1 d", "healthy"]
    topic = await client.whole(f"/console/log/topics/{DELIVERY_LOG}")
    empty, filled = topic.texts(".//tbody/tr")
    assert empty.split()[:2] == ["0", "broker"]
    # The times of its first and last message.
    assert "2025-11-22 00:00:00" in filled
    assert "2025-11-22 00:00:02" in filled


@pytest.mark.usefixtures("written")
async def test_a_group_has_the_lag_and_the_owner_of_each_partition(
    client: ConsoleClient, broker: BrokerProcess
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "readers & more",
            "client.id": "reader-7",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe([DELIVERY_LOG])
        until(lambda: consumer.poll(0.1) or consumer.assignment(), "it has partitions")
        consumer.commit(offsets=[TopicPartition(DELIVERY_LOG, 1, 1)], asynchronous=False)
        groups = await client.whole("/console/log/groups")
        href = groups.one(".//th/a[.='readers & more']").get("href")
        assert href is not None
        group = await client.whole(href)
        row = group.texts(".//tbody/tr")[1].split()
    assert row[:5] == [DELIVERY_LOG, "1", "1", "3", "2"]
    assert "reader-7" in row


@pytest.mark.usefixtures("written")
async def test_messages_are_decoded_and_link_to_a_replay(
    client: ConsoleClient,
) -> None:
    page = await client.whole(f"/console/log/topics/{DELIVERY_LOG}/messages")
    places = [text.split("2025")[0].split() for text in page.texts(".//summary")]
    assert next(place for place in places if "/" in place)[:3] == ["1", "/", "2"]
    values = page.texts(".//pre")
    assert any(f'"html": "{HOSTILE}"' in value for value in values)
    assert any(value.startswith("00000000 ff 00") for value in values)
    assert not page.all(".//main//script")
    hrefs = [link.get("href") for link in page.all(".//a") if "Replay from" in (link.text or "")]
    assert hrefs[-1] == "/console/replays/new?webhookId=wh_1&from=2025-11-22T00%3A00%3A00"


@pytest.mark.usefixtures("written")
async def test_messages_from_an_offset_a_time_or_an_end(client: ConsoleClient) -> None:
    for query, offsets in (
        ({"from": "oldest"}, ["0", "1", "2"]),
        ({"from": "offset", "partition": "1", "offset": "1"}, ["1", "2"]),
        ({"from": "time", "time": "2025-11-22T00:00:02"}, ["2"]),
        ({"from": "newest", "partition": "0"}, []),
    ):
        page = await client.whole(f"/console/log/topics/{DELIVERY_LOG}/messages", **query)
        found = [text.split()[2] for text in page.texts(".//summary") if " / " in text]
        assert found == offsets


async def test_pages_of_messages_keep_the_form(
    client: ConsoleClient, broker: BrokerProcess
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(60):
        producer.produce(DELIVERY_LOG, str(number), partition=1, timestamp=TIME_MS + number)
    producer.flush()
    here = f"/console/log/topics/{DELIVERY_LOG}/messages"
    first = await client.whole(here, **{"from": "offset", "partition": "1", "offset": "3"})
    later = await client.whole(first.one(".//a[.='Later']").get("href", ""))
    assert [
        later.one(f".//input[@id='{each}']").get("value") for each in ("partition", "offset")
    ] == [
        "1",
        "3",
    ]
    found = [text.split()[2] for text in later.texts(".//summary") if " / " in text]
    assert found == [str(offset) for offset in range(53, 60)]
    tab = later.one(".//nav[@aria-label='Log']//a[@aria-current]")
    assert (tab.text, tab.get("aria-current")) == ("Topics", "true")


async def test_an_invalid_position_is_shown_at_its_field(client: ConsoleClient) -> None:
    for query, field in (
        ({"from": "offset", "partition": "1"}, "offset"),
        ({"from": "offset", "partition": "1", "offset": "-1"}, "offset"),
        ({"from": "offset", "offset": "1"}, "partition"),
        ({"from": "time", "time": "yesterday"}, "time"),
        ({"partition": "7"}, "partition"),
        ({"from": "the middle"}, "from"),
    ):
        answer = await client.get(f"/console/log/topics/{DELIVERY_LOG}/messages", **query)
        assert answer.status_code == 400, query
        assert f'id="{field}-error"' in answer.text


async def test_unknown_topics_and_groups_are_not_found(client: ConsoleClient) -> None:
    for path in ("/console/log/topics/none", "/console/log/topics/none/messages"):
        assert (await client.get(path)).status_code == 404
    assert (await client.get("/console/log/group", id="unknown")).status_code == 404


async def test_processes_are_shown_without_the_log(
    client: ConsoleClient, store: Store, broker: BrokerProcess
) -> None:
    store.record_process_heartbeat(ProcessKind.WORKER, "host:1", "here", TIME_MS, {"jobs": 3})
    page = await client.page("/console/log/processes")
    assert f"127.0.0.1:{broker.port}" in page.main
    assert "jobs: 3" in page.main
    broker.kill()
    page = await client.page("/console/log/processes")
    assert "Log unreachable" in page.main
    assert "host:1" in page.main
    assert (await client.get("/console/log")).status_code == 503


async def test_pipeline_runs_show_missing_records(client: ConsoleClient, store: Store) -> None:
    for job, outcome, summary in (
        ("load", RunOutcome.DONE, {"records": 1_200}),
        ("audit", RunOutcome.DONE, {"missing": 2}),
        ("compact", RunOutcome.FAILED, {"error": HOSTILE}),
    ):
        store.add_pipeline_run(
            PipelineRun(job, "/tables/records", outcome, TIME_MS, TIME_MS + 61_000, summary)
        )
    page = await client.page("/console/log/pipeline")
    rows = {row.split()[0]: row for row in page.texts(".//tbody/tr")}
    assert "1 min 1 s" in rows["load"]
    assert "2 missing" in rows["audit"]
    assert HOSTILE in rows["compact"]
    history = page.one(".//a[@aria-label='Earlier runs of load on /tables/records']").get("href")
    assert history is not None
    assert "Runs of load" in (await client.page(history)).main


@pytest.mark.usefixtures("written")
async def test_topics_and_groups_are_sampled_and_plotted(
    client: ConsoleClient, application: FastAPI, broker: BrokerProcess, settings: Settings
) -> None:
    offsets = [TopicPartition(DELIVERY_LOG, 1, 1)]
    commit_offsets(broker.bootstrap_servers, "readers", offsets)
    assert "No samples in the last hour" in (await client.whole("/console/log")).main
    services: Services = application.state.services
    # With more time than the service has: a busy broker would leave out a figure.
    inspector = LogInspector(settings, time_s_max=DEADLINE_S)
    sampler = LogSampler(services.store, services.log_samples, inspector, settings.retention_ms)
    assert sampler.sample()
    topic = Series(SeriesKind.TOPIC, DELIVERY_LOG)
    (sample,) = services.log_samples.list(topic, SampleSpan.MINUTE, 0)
    assert sample.value == 3
    assert sample.bytes
    (group,) = services.log_samples.list(Series(SeriesKind.GROUP, "readers"), SampleSpan.MINUTE, 0)
    assert group == LogSample(sample.start_ms, 2)
    before_ms = sample.start_ms - MINUTE_MS
    empty = LogSample(before_ms, 0, 0)
    services.log_samples.add(before_ms, {topic: empty, ALL_TOPICS: empty})
    both = ["Messages written to the topic", "Size of the topic"]
    for path, titles in (
        ("/console/log", ["Messages written to all topics", "Lag of all groups"]),
        (f"/console/log/topics/{DELIVERY_LOG}", both),
        ("/console/log/group?id=readers", ["Lag of the group"]),
    ):
        page = await client.whole(path)
        assert page.texts(f"{RANGE}//h3") == titles
        hrefs = [link.get("href", "") for link in page.all(f"{RANGE}//nav//a")]
        assert len(hrefs) == 3
        for href in hrefs:
            assert (await client.whole(href)).texts(f"{RANGE}//h3")[-1] == titles[-1]
    assert (await client.get("/console/log", range="1y")).status_code == 400


async def test_a_process_of_the_service_samples_the_log(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = partial(LogSampler, interval_s=0.05)
    monkeypatch.setattr("app.services.services.LogSampler", often)
    async with open_services(settings) as services:
        await until_async(
            lambda: services.log_samples.list(ALL_TOPICS, SampleSpan.TEN_MINUTES, 0),
            "the log is sampled",
        )


async def test_a_window_before_the_log_names_the_tables_with_older_deliveries(
    client: ConsoleClient, application: FastAPI, store: Store, broker: BrokerProcess
) -> None:
    for topic in (DELIVERY_OUTCOMES, DELIVERY_ATTEMPTS):
        broker.make_topic(topic, 2)
    alice = issue_key(store, "alice", Scope.DEVELOPER)
    webhook = enabled_webhook(store, alice)
    partition = partition_for_key(webhook.id.encode(), 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(
            DELIVERY_OUTCOMES, b"{}", webhook.id, partition=partition, timestamp=TIME_MS + number
        )
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(DELIVERY_OUTCOMES, partition, 5)]).values():
        deleted.result(DEADLINE_S)
    here = f"/console/webhooks/{webhook.id}/deliveries"
    query = {"from": "2025-11-21T00:00:00", "to": "2025-11-22T01:00:00"}

    async def refusal(viewer: ConsoleClient = client) -> str:
        answer = await viewer.get(here, **query)
        assert answer.status_code == 400, answer.text
        return HtmlPage(answer.text).main

    assert "before the retained history" in await refusal()
    assert "older deliveries" not in await refusal()
    topics = {DELIVERY_OUTCOMES: {"records": 5}}
    for table, loaded in (("/tables/records", topics), ("/tables/other", {"events": {}})):
        run = PipelineRun("load", table, RunOutcome.DONE, TIME_MS, TIME_MS + 1, {}, loaded)
        store.add_pipeline_run(run)
    failed = PipelineRun("load", "/tables/records", RunOutcome.FAILED, TIME_MS + 2, TIME_MS + 3)
    store.add_pipeline_run(failed)
    main = await refusal()
    assert "older deliveries are in tables of the nightly load: /tables/records" in main
    assert "/tables/other" not in main
    async with ConsoleClient(application, alice) as developer:
        main = await refusal(developer)
    assert "operators have older deliveries in tables" in main
    assert "/tables" not in main


async def test_developers_cannot_see_the_log(application: FastAPI, store: Store) -> None:
    issued = issue_key(store, "alice", Scope.DEVELOPER, "")
    pages = ("", "/topics/x", "/topics/x/messages", "/groups", "/group?id=x", "/processes")
    async with ConsoleClient(application, issued) as developer:
        for page in (*pages, "/pipeline"):
            assert (await developer.get(f"/console/log{page}")).status_code == 403
