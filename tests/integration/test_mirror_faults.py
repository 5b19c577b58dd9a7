"""Mirrors that are killed, and a destination that is: nothing is lost, and order is kept."""

from collections.abc import Iterator
from functools import partial
from itertools import chain, pairwise
from pathlib import Path

import pytest

from logbroker.client.audit_format.mark import AUDIT_HEADER, AUDIT_TOPIC, Mark
from logbroker.client.audit_format.report import ReceivedReport, decode
from tests.support.kafka.audit_marks import encode_mark
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import (
    LONG_SESSION_MS,
    READY,
    ClusterClient,
    MirrorProcess,
    Record,
    until_copied,
    without_repeats,
)
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.xdist_group("mirror"), pytest.mark.long]

TIME_MS = 1_763_712_000_000
PARTITIONS = 3
GROUP = "killed"
OPTIONS = ("--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "1000")


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    with (
        BrokerProcess(tmp_path / "east", *OPTIONS, name="east") as east,
        BrokerProcess(tmp_path / "west", *OPTIONS, name="west") as west,
    ):
        yield east.serve(), west.serve()


def numbered(start: int, end: int) -> list[Record]:
    """Records over all partitions, each of them marked for the audit."""
    return [
        Record(
            number % PARTITIONS,
            TIME_MS,
            None,
            b"%d " % number + 200 * b".",
            ((AUDIT_HEADER, encode_mark(Mark("api/1", TIME_MS, number))),),
        )
        for number in range(start, end)
    ]


def values(client: ClusterClient, topic: str) -> list[list[bytes]]:
    return [[each.value or b"" for each in partition] for partition in client.read(topic)]


def test_mirrors_killed_again_and_again_lose_nothing_and_repeat_only_what_was_not_committed(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    east, west = (ClusterClient(each.bootstrap_servers) for each in brokers)
    east.make_topic("orders", PARTITIONS)
    east.make_topic(AUDIT_TOPIC, 1)
    route = (east.servers, west.servers, "orders", "--origin", "east", "--group", GROUP)
    mirrors = [MirrorProcess(tmp_path / f"mirror-{each}", *route) for each in range(2)]
    committed = [[0] * PARTITIONS]
    written = 0
    with mirrors[0], mirrors[1]:
        mirrors[0].serve()
        for attempt in range(3):
            east.write("orders", numbered(written, written + 6_000))
            written += 6_000
            until_copied(west, "orders", written - 3_000)
            mirrors[attempt % 2].kill()
            committed.append(east.committed(GROUP, "orders", PARTITIONS))
            mirrors[(attempt + 1) % 2].serve()
        until(
            lambda: sum(east.committed(GROUP, "orders", PARTITIONS)) == written, "all is committed"
        )
        assert mirrors[1].stop() == 0
        source, copies = values(east, "orders"), values(west, "orders")
    for number in range(PARTITIONS):
        assert without_repeats(copies[number]) == source[number]
        places = [source[number].index(value) for value in copies[number]]
        # Where a mirror began again, it was at a position that had been committed.
        began = [after for before, after in pairwise(places) if after != before + 1]
        assert set(began) <= {positions[number] for positions in committed}
    assert received(east) == set(range(written))


def has_no_lag(mirror: MirrorProcess) -> bool:
    return mirror.metric("lag_records") == 0


def received(client: ClusterClient) -> set[int]:
    """The messages of `api/1` that the mirrors say they have brought over."""
    found: set[int] = set()
    for record in client.read(AUDIT_TOPIC)[0]:
        event = decode(record.value)
        assert isinstance(event, ReceivedReport)
        assert event.tier == "mirror@east"
        for count in event.counts:
            assert (count.topic, count.producer) == ("orders", "api/1")
            found.update(count.sequences)
    return found


def test_a_destination_that_dies_and_comes_back_has_everything_once(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    east, west = (ClusterClient(each.bootstrap_servers) for each in brokers)
    east.make_topic("orders", PARTITIONS)
    route = (east.servers, west.servers, "orders")
    with (
        MirrorProcess(tmp_path / "mirror-1", *route, session_ms=LONG_SESSION_MS) as mirror,
        MirrorProcess(tmp_path / "mirror-2", *route, session_ms=LONG_SESSION_MS) as another,
    ):
        mirror.serve()
        another.launch()
        another.until_says(READY)
        until(
            lambda: len({*mirror.metrics("lag_records"), *another.metrics("lag_records")}) == 3,
            "all partitions are copied",
        )
        east.write("orders", numbered(0, 6_000))
        until_copied(west, "orders", 1_000)
        brokers[1].kill()
        east.write("orders", numbered(6_000, 12_000))
        mirror.until_says("client error cluster=destination")
        brokers[1].serve()
        until_copied(west, "orders", 12_000)
        for each in (mirror, another):
            until(partial(has_no_lag, each), "nothing lags behind")
            assert each.metric("restarts_total") == 0
            assert each.metric("delay_seconds_count") == each.metric("records_total")
            assert each.metric("bytes_total") >= 200 * each.metric("records_total") > 0
        assert values(west, "orders") == values(east, "orders")


def test_a_recreated_source_topic_is_copied_from_its_beginning(
    brokers: tuple[BrokerProcess, BrokerProcess], tmp_path: Path
) -> None:
    """It has more records than the one before: the position is there, and means others."""
    east, west = (ClusterClient(each.bootstrap_servers) for each in brokers)
    east.make_topic("orders", PARTITIONS)
    east.write("orders", numbered(0, 300))
    route = (east.servers, west.servers, "orders", "--group", GROUP)
    with MirrorProcess(tmp_path / "mirror", *route, session_ms=60_000) as mirror:
        mirror.serve()
        until_copied(west, "orders", 300)
        until(lambda: sum(east.committed(GROUP, "orders", PARTITIONS)) == 300, "it is committed")
        # Its reader is not to see the time without a topic: that it would notice by itself.
        mirror.pause()
        east.admin.delete_topics(["orders"])["orders"].result(DEADLINE_S)
        until(lambda: east.partitions("orders") == 0, "the topic is gone")
        east.make_topic("orders", PARTITIONS)
        ClusterClient(east.servers).write("orders", numbered(1_000, 2_200))
        mirror.resume()
        wanted = {each.value for each in numbered(1_000, 2_200)}
        until(lambda: wanted <= {*chain(*values(west, "orders"))}, "all of it is copied")
        assert mirror.metric("errors_total", reason="topic_recreated") >= 1
