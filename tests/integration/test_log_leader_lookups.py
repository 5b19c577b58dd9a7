"""The Kafka client looks no leaders up by itself while it looks offsets up.

It crashes the process if metadata of another request arrives meanwhile.
"""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from app.config import Settings
from app.domain.model import Window
from app.log.browser import BrowseQuery, LogBrowser
from app.log.event_records import EventRecords
from app.log.history import LogHistory
from app.log.inspection import LogInspector
from app.log.inspection.deadline import Deadline
from app.log.topics import DELIVERY_LOG, EVENTS, ensure_topics
from logbroker.cli.log_positions import LogPositions
from logbroker.client.admin import EARLIEST, LATEST
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S

DEBUG = {"debug": "metadata", "log_level": "7"}
"""The client writes to standard error why it requests metadata."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        servers = broker.serve().bootstrap_servers
        ensure_topics(servers, partitions=2, retention_ms=86_400_000)
        yield Settings(bootstrap_servers=servers, kafka_properties=DEBUG)


def find_window(settings: Settings) -> None:
    history = LogHistory(settings.bootstrap_servers, properties=DEBUG)
    history.offsets_for("wh_1", Window(1, 2), 0)


def find_end(settings: Settings) -> None:
    LogHistory(settings.bootstrap_servers, properties=DEBUG).end_before("wh_1", 1)


def find_bounds(settings: Settings) -> None:
    LogHistory(settings.bootstrap_servers, properties=DEBUG).bounds(DELIVERY_LOG, 0)


def find_bounds_of_events(settings: Settings) -> None:
    with closing(EventRecords(settings)) as records:
        records.bounds(Deadline(DEADLINE_S))


def list_topics(settings: Settings) -> None:
    LogInspector(settings).topics()


def describe_topic(settings: Settings) -> None:
    LogInspector(settings).topic(EVENTS)


def browse(settings: Settings) -> None:
    LogBrowser(settings, LogInspector(settings).requests).browse(BrowseQuery(EVENTS))


def describe_on_command_line(settings: Settings) -> None:
    client = AdminClient({"bootstrap.servers": settings.bootstrap_servers, **DEBUG})
    LogPositions(client).find([(EVENTS, 0), (EVENTS, 1)], (EARLIEST, LATEST))


@pytest.mark.parametrize(
    "look_up",
    [
        *(find_window, find_end, find_bounds, find_bounds_of_events),
        *(list_topics, describe_topic, browse, describe_on_command_line),
    ],
)
def test_leaders_are_known_before_offsets_are_looked_up(
    look_up: Callable[[Settings], None], settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    look_up(settings)
    written = capfd.readouterr().err
    assert "application requested" in written
    assert "query partition leaders" not in written
