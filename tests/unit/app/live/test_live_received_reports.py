"""When a stage reports what it received, and what waits for the report."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

from app.config import Settings
from app.live.received_reports import AT_ONCE_RECORDS, ReceivedReports
from app.log.event import LoggedEvent
from app.log.publisher import EventPublisher
from app.log.publisher_audit import AuditOptions
from app.log.topics import EVENTS
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.audit_format.report import ReceivedReport, decode
from logbroker.client.stamper import Stamper


def record(number: int) -> LoggedEvent:
    mark = f"api-1/1:1760000000000:{number}".encode()
    return LoggedEvent(number, 0, None, "", "", b"{}", "", mark)


def run(
    servers: str,
    scenario: Callable[[ReceivedReports, EventPublisher], Awaitable[None]],
    *,
    server: str = "live-1",
    timeout_s: float = 30,
) -> None:
    """Run `scenario` with the reports of a group member, and their publisher."""

    async def with_publisher() -> None:
        settings = Settings(origin="here", server=server)
        async with EventPublisher(
            servers,
            origin="here",
            server="live-1",
            delivery_timeout_s=timeout_s,
            audit=AuditOptions(Stamper("live-1")),
        ) as publisher:
            reports = ReceivedReports.of(settings, publisher, EVENTS, "rewind-live")
            assert reports is not None
            await scenario(reports, publisher)

    asyncio.run(with_publisher())


def reported(servers: str, count: int) -> list[ReceivedReport]:
    """The first reports in the log."""
    with closing(
        Consumer({"bootstrap.servers": servers, "group.id": "test", "log_level": 0})
    ) as consumer:
        consumer.assign([TopicPartition(AUDIT_TOPIC, each, 0) for each in range(4)])
        events = [decode(each.value()) for each in consumer.consume(count, 10)]
    return [event for event in events if isinstance(event, ReceivedReport)]


def test_reports_are_acknowledged_before_a_commit(foreign_broker: str) -> None:
    async def scenario(reports: ReceivedReports, publisher: EventPublisher) -> None:
        for number in range(3):
            reports.count_event(record(number))
        assert await reports.report_before_commit()
        assert publisher.pending_audit_reports == 0
        (event,) = await asyncio.to_thread(reported, foreign_broker, 1)
        assert event.tier == "rewind-live@here"
        assert event.consumer.startswith("live-1/")
        (count,) = event.counts
        assert (count.topic, count.producer, set(count.sequences)) == (
            EVENTS,
            "api-1/1",
            {0, 1, 2},
        )

    run(foreign_broker, scenario)


def test_a_few_records_wait_for_more_and_many_do_not(foreign_broker: str) -> None:
    async def scenario(reports: ReceivedReports, publisher: EventPublisher) -> None:
        reports.count_event(record(0))
        assert await reports.report_before_commit()
        reports.count_event(record(1))
        reports._next_s = float("inf")
        assert not await reports.report_before_commit()
        for number in range(2, 1 + AT_ONCE_RECORDS):
            reports.count_event(record(number))
        assert await reports.report_before_commit()
        # Without any there is nothing to wait for.
        reports._next_s = float("inf")
        assert await reports.report_before_commit()

    run(foreign_broker, scenario)


def test_released_partitions_wait_for_a_report_in_flight(foreign_broker: str) -> None:
    async def scenario(reports: ReceivedReports, publisher: EventPublisher) -> None:
        reports.count_event(record(0))
        regular = asyncio.create_task(reports.report_before_commit())
        await asyncio.sleep(0)
        assert publisher.pending_audit_reports == 1
        await reports.report_before_release()
        assert publisher.pending_audit_reports == 0
        assert await regular

    run(foreign_broker, scenario)


def test_an_unreachable_log_delays_commits_for_a_limited_time(
    refused_address: str,
) -> None:
    async def scenario(reports: ReceivedReports, publisher: EventPublisher) -> None:
        reports.count_event(record(0))
        first = asyncio.create_task(reports.report_before_commit())
        await asyncio.sleep(0)
        assert not first.done()
        async with asyncio.timeout(60):
            assert await first
            reports.count_event(record(1))
            reports._next_s = 0.0
            assert await reports.report_before_commit()
        # They are kept for a retry.
        assert publisher.pending_audit_reports == 2

    run(refused_address, scenario, timeout_s=1)


def test_a_long_server_name_is_cut(foreign_broker: str) -> None:
    async def scenario(reports: ReceivedReports, publisher: EventPublisher) -> None:
        reports.count_event(record(0))
        assert await reports.report_before_commit()
        (event,) = await asyncio.to_thread(reported, foreign_broker, 1)
        assert event.consumer.startswith("s" * 293 + "/")

    run(foreign_broker, scenario, server="s" * 1_000)
