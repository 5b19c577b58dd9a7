"""Mirrors between two brokers: what is kept, what goes round, what is refused, what is said."""

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from logbroker.client.audit_format.mark import AUDIT_HEADER, AUDIT_TOPIC, Mark
from logbroker.records.batch import iter_batches
from logbroker.records.compression import Codec
from tests.support.kafka.audit_counts import received
from tests.support.kafka.audit_marks import encode_mark
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.damaged_log import DAMAGES, damage_batch, stored_batches
from tests.support.kafka.mirrored_clusters import (
    LONG_SESSION_MS,
    READY,
    ClusterClient,
    MirrorProcess,
    Record,
    until_copied,
)
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = pytest.mark.xdist_group("mirror")

TIME_MS = 1_763_712_000_000
OPTIONS = ("--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "1000")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, ...]]:
    folder = tmp_path_factory.mktemp("brokers")
    with (
        BrokerProcess(folder / "east", *OPTIONS, name="east") as east,
        BrokerProcess(folder / "west", *OPTIONS, name="west") as west,
    ):
        yield east.serve(), west.serve()


@pytest.fixture(scope="module")
def east(brokers: tuple[BrokerProcess, ...]) -> ClusterClient:
    return ClusterClient(brokers[0].bootstrap_servers)


@pytest.fixture(scope="module")
def west(brokers: tuple[BrokerProcess, ...]) -> ClusterClient:
    return ClusterClient(brokers[1].bootstrap_servers)


def odd_records() -> list[Record]:
    """Records with everything that may be absent, empty or repeated; long enough to compress."""
    values = (None, b"", b"\xff\0" * 9, b"long " * 200)
    keys = (None, b"", b"wh_1")
    headers = (
        (),
        (("origin", b"east"),),
        (("trace", b"2"), ("trace", None), ("trace", b""), ("s\u00e4", b"\xff"), ("trace", b"1")),
    )
    return [
        Record(number % 3, TIME_MS - 86_400_000 * number, key, value, header)
        for number, (key, value, header) in enumerate(
            (key, value, header) for key in keys for value in values for header in headers
        )
    ]


def by_partition(records: list[Record], count: int) -> list[list[Record]]:
    return [[each for each in records if each.partition == number] for number in range(count)]


def has_partitions(client: ClusterClient, topic: str, count: int) -> bool:
    return client.partitions(topic) == count


def has_counted(mirror: MirrorProcess, name: str, count: int) -> bool:
    return mirror.metric(name) == count


def with_header(record: Record, name: str, value: bytes) -> Record:
    return record._replace(headers=(*record.headers, (name, value)))


def test_records_keep_everything_and_topics_their_settings(
    brokers: tuple[BrokerProcess, ...], east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    records = odd_records()
    settings = {"retention_ms": "-1", "max_message_bytes": "900000"}
    for topic in ("kept_named", "kept"):
        east.make_topic(topic, 3, **settings)
        east.write(topic, records)
    addresses = (east.servers, west.servers)
    named = MirrorProcess(tmp_path / "1", *addresses, "kept_named", "--origin", "east")
    plain = MirrorProcess(tmp_path / "2", *addresses, "kept", "--compression", "zstd")
    with named, plain:
        named.launch()
        plain.serve()
        for topic in ("kept_named", "kept"):
            until(partial(has_partitions, west, topic, 3), "the topic is made")
            until_copied(west, topic, len(records))
        named_records, plain_records = west.read("kept_named"), west.read("kept")
        assert named.stop() == 0
        assert plain.stop() == 0
    source_id: Any = east.admin.list_topics(timeout=DEADLINE_S).cluster_id
    assert f"mirroring topics=kept from={east.servers} from_cluster={source_id} to=" in plain.output
    assert "partitions assigned partitions=kept-0..2\n" in plain.output
    assert plain_records == by_partition(
        [with_header(each, "mirrored-from", source_id.encode()) for each in records], 3
    )
    assert named_records == by_partition(
        [
            each if ("origin", b"east") in each.headers else with_header(each, "origin", b"east")
            for each in records
        ],
        3,
    )
    for topic, codec in (("kept_named", Codec.SNAPPY), ("kept", Codec.ZSTD)):
        segment = brokers[1].data_dir / f"{topic}-0" / f"{0:020}.log"
        batches = [header for header, _ in iter_batches(segment.read_bytes())]
        # The first record goes alone, and alone would not become smaller.
        assert max(batches, key=lambda batch: batch.record_count).compression == codec


@pytest.mark.parametrize("with_origins", [True, False])
def test_two_mirrors_at_once_send_nothing_round(
    east: ClusterClient, west: ClusterClient, tmp_path: Path, with_origins: bool
) -> None:
    topic, count = f"both_{with_origins}", 300
    for name, client in (("east", east), ("west", west)):
        if not client.partitions(AUDIT_TOPIC):
            client.make_topic(AUDIT_TOPIC, 1)
        client.make_topic(topic, 2)
        client.write(topic, made_in(name, count))
    options = {name: ("--origin", name) if with_origins else () for name in ("east", "west")}
    there = MirrorProcess(tmp_path / "1", east.servers, west.servers, topic, *options["east"])
    back = MirrorProcess(tmp_path / "2", west.servers, east.servers, topic, *options["west"])
    with there, back:
        there.launch()
        back.serve()
        there.until_says(READY)
        # Each has read to the end, where what the other one brought lies too.
        for mirror in (there, back):
            until(partial(has_counted, mirror, "records_total", count), "all are copied")
            until(
                partial(has_counted, mirror, "skipped_total", count),
                "all mirrored messages are skipped",
            )
            reason = "origin" if with_origins else "loop"
            assert mirror.metric("skipped_total", topic=topic, reason=reason) == count
            assert mirror.stop() == 0
    for own, client in (("east", east), ("west", west)):
        # Of another origin the other side may have nothing; what came from there it has.
        known = {own} if with_origins else {"east", "west"}
        assert reported_by_mirror(client, topic) == {
            (each, number) for each in known for number in range(count)
        }
        assert sum(client.ends(topic)) == 2 * count
        for partition in client.read(topic):
            for name in ("east", "west"):
                found = [each.value or b"" for each in partition]
                values = [value for value in found if value.startswith(name.encode())]
                assert (
                    values
                    == [each.value for each in made_in(name, count)][partition[0].partition :: 2]
                )


def made_in(name: str, count: int) -> list[Record]:
    """Records that are marked for the audit."""
    return [
        Record(
            number % 2,
            TIME_MS,
            None,
            b"%s %d" % (name.encode(), number),
            ((AUDIT_HEADER, encode_mark(Mark(name, TIME_MS, number))),),
        )
        for number in range(count)
    ]


def reported_by_mirror(client: ClusterClient, topic: str) -> set[tuple[str, int]]:
    """Return producer and sequence of all messages that this cluster's mirror reported."""
    places = received(client.servers)
    return {(producer, sequence) for name, producer, sequence in places if name == topic}


def test_partitions_are_added_and_never_taken(
    east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    east.make_topic("grows", 1)
    route = (east.servers, west.servers, "grows,later")
    with MirrorProcess(tmp_path / "1", *route, session_ms=LONG_SESSION_MS) as mirror:
        mirror.launch()
        until(lambda: west.partitions("grows") == 1, "the topic is made")
        mirror.until_says("topic is missing at the source topic=later")
        east.make_topic("later", 2)
        east.admin.create_partitions([NewPartitions("grows", 3)])["grows"].result(DEADLINE_S)
        for topic, partition in (("grows", 2), ("later", 1)):
            east.write(topic, [Record(partition, TIME_MS, b"key", b"value")])
            until_copied(west, topic, 1)
        assert west.ends("grows") == [0, 0, 1]
        assert west.ends("later") == [0, 1]
        assert mirror.metric("restarts_total") == 0
        assert mirror.stop() == 0
    with MirrorProcess(tmp_path / "2", west.servers, east.servers, "grows") as back:
        west.admin.create_partitions([NewPartitions("grows", 4)])["grows"].result(DEADLINE_S)
        back.launch()
        until(lambda: east.partitions("grows") == 4, "the other way, too")
    east.admin.create_partitions([NewPartitions("grows", 5)])["grows"].result(DEADLINE_S)
    refused = MirrorProcess(tmp_path / "3", west.servers, east.servers, "grows")
    with refused:
        refused.launch()
        assert refused.wait() == 1
    assert (
        "logbroker: topic 'grows' has 5 partitions at the destination and 4 at the source"
        in refused.output
    )


def test_patterns_find_what_is_there_and_what_is_made_later(
    east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    pattern = "^found_[a-z]+"
    for topic in ("found_1", "not_found_a"):
        east.make_topic(topic, 1)
    route = (east.servers, west.servers, pattern)
    with MirrorProcess(tmp_path / "1", *route, session_ms=LONG_SESSION_MS) as mirror:
        # That there is nothing yet is no reason not to begin.
        mirror.serve()
        for topic in ("found_a", "found_b"):
            east.make_topic(topic, 2)
            east.write(topic, [Record(1, TIME_MS, b"key", b"value")])
            mirror.until_says(f"topic found topic={topic} pattern={pattern}\n")
            until(partial(has_partitions, west, topic, 2), "the topic is made")
            until_copied(west, topic, 1)
        # The topics that cannot be mirrored were found by pattern: the others are copied.
        west.make_topic("found_c", 3)
        east.make_topic("found_c", 2)
        west.make_topic("found.d", 1)
        east.make_topic("found_d", 1)
        mirror.until_says("topic omitted topic=found_c reason=topic 'found_c' has 3 partitions")
        # No broker takes names that differ in this alone.
        mirror.until_says("topic omitted topic=found_d reason=")
        east.write("found_a", [Record(0, TIME_MS, b"key", b"more")])
        until_copied(west, "found_a", 2)
        assert mirror.metric("restarts_total") == 0
        assert mirror.stop() == 0
    assert west.ends("found_c") == [0, 0, 0]
    assert west.partitions("found_1") == west.partitions("not_found_a") == 0


def test_a_destination_that_stamps_times_is_refused_and_so_is_the_source_itself(
    east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    east.make_topic("stamped", 1)
    west.make_topic("stamped", 1, message_timestamp_type="LogAppendTime")
    with (
        MirrorProcess(tmp_path / "1", east.servers, west.servers, "stamped") as stamping,
        MirrorProcess(
            tmp_path / "2", east.servers, east.servers.replace("127.0.0.1", "localhost"), "stamped"
        ) as itself,
    ):
        stamping.launch()
        itself.launch()
        assert stamping.wait() == itself.wait() == 1
    assert "message.timestamp.type of topic 'stamped' is 'LogAppendTime'" in stamping.output
    assert "logbroker: --from and --to are the same cluster" in itself.output


def test_a_record_that_the_destination_refuses_stops_those_behind_it_and_no_others(
    brokers: tuple[BrokerProcess, ...], east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    east.make_topic("large", 2)
    west.make_topic("large", 2, max_message_bytes="20000")
    # Many small ones, which would not fit if they were sent as one.
    small = [Record(0, TIME_MS, None, random_bytes(1_000)) for _ in range(100)]
    large = Record(0, TIME_MS, None, random_bytes(50_000))
    behind = [Record(number % 2, TIME_MS, None, b"%d" % number) for number in range(100)]
    east.write("large", [*small, large, *behind])
    with MirrorProcess(tmp_path / "1", east.servers, west.servers, "large") as mirror:
        mirror.serve()
        until(lambda: mirror.metric("errors_total", reason="MSG_SIZE_TOO_LARGE") >= 2, "refusals")
        mirror.until_says("large-0 from the source's offset 100 on")
        until(lambda: mirror.metric("restarts_total") >= 2, "it begins again after each")
        # Beginning again, it repeats nothing that was acknowledged.
        until(lambda: west.ends("large") == [100, 50], "the others are copied")
        east.write("large", [Record(0, TIME_MS, None, b"last")])
        until(lambda: mirror.metric("lag_records", partition=0) == 52, "the lag is reported")
        until(lambda: mirror.metric("lag_seconds", topic="large") > 0, "it is behind")
        seen_s, restarts = time.monotonic(), mirror.metric("restarts_total")
        until(lambda: mirror.metric("restarts_total") > restarts, "it begins again")
        behind_at_least_s = time.monotonic() - seen_s
        assert mirror.metric("lag_seconds", topic="large") >= behind_at_least_s
        brokers[1].change_topic("large", max_message_bytes="100000")
        until_copied(west, "large", 202)
        until(lambda: mirror.metric("lag_records") == 0, "nothing lags behind")
        until(lambda: mirror.metric("lag_seconds") == 0, "nor is there anything that waits")
        assert mirror.stop() == 0
    assert values_of(west, "large") == values_of(east, "large")


def test_the_log_names_the_refused_record_of_a_batch(
    east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    """A compacted topic takes no record without a key; the others of its batch fail with it."""
    east.make_topic("keyed", 1)
    west.make_topic("keyed", 1, cleanup_policy="compact")
    keys = [b"%d" % number if number != 30 else None for number in range(50)]
    east.write("keyed", [Record(0, TIME_MS, key, b"value") for key in keys])
    with MirrorProcess(tmp_path / "1", east.servers, west.servers, "keyed") as mirror:
        mirror.serve()
        mirror.until_says("keyed-0 from the source's offset 30 on")
        until(lambda: mirror.metric("errors_total", reason="INVALID_RECORD") >= 2, "refusals")
        # What was acknowledged before is not sent again.
        ends = west.ends("keyed")
        until(lambda: mirror.metric("errors_total", reason="INVALID_RECORD") >= 3, "refusals")
        assert west.ends("keyed") == ends == [mirror.metric("records_total")]
        assert mirror.stop() == 0


def random_bytes(count: int) -> bytes:
    """What no codec makes smaller."""
    return random.Random(count).randbytes(count)


def values_of(client: ClusterClient, topic: str) -> list[list[bytes | None]]:
    return [[each.value for each in partition] for partition in client.read(topic)]


def test_records_deleted_before_they_were_copied_are_reported(
    east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    east.make_topic("trimmed", 1)
    options = ("trimmed", "--group", "trimming", "--log-format", "json")
    east.write("trimmed", [Record(0, TIME_MS, None, b"%d" % each) for each in range(10)])
    with MirrorProcess(tmp_path / "1", east.servers, west.servers, *options) as mirror:
        mirror.serve()
        until(lambda: east.committed("trimming", "trimmed", 1) == [10], "all is committed")
        # As it does when the process that started it dies.
        assert mirror.stop() == 0
    east.write("trimmed", [Record(0, TIME_MS, None, b"%d" % each) for each in range(10, 30)])
    place = TopicPartition("trimmed", 0, 25)
    east.admin.delete_records([place])[place].result(DEADLINE_S)
    route = (east.servers, west.servers, *options)
    with MirrorProcess(tmp_path / "2", *route, session_ms=LONG_SESSION_MS) as mirror:
        mirror.serve()
        until_copied(west, "trimmed", 15)
        assert mirror.metric("records_lost_total", topic="trimmed") == 15
        assert mirror.metric("errors_total", reason="records_lost") == 1
        assert mirror.metric("restarts_total") == 0
    assert '"position": 10, "earliest": 25, "end": 30, "lost": 15' in mirror.output
    numbers = [*range(10), *range(25, 30)]
    assert values_of(west, "trimmed") == [[b"%d" % each for each in numbers]]


def test_clusters_that_are_away_are_waited_for(tmp_path: Path) -> None:
    options = ("--stop-on-stdin-close", "--group", "patient")
    with (
        BrokerProcess(tmp_path / "a", *OPTIONS, name="a") as source,
        BrokerProcess(tmp_path / "b", *OPTIONS, name="b") as destination,
        MirrorProcess(
            tmp_path / "mirror",
            source.bootstrap_servers,
            destination.bootstrap_servers,
            "patience",
            *options,
        ) as mirror,
    ):
        mirror.launch()
        mirror.until_says("waiting for a cluster")
        source.serve()
        source.make_topic("patience", 1)
        destination.serve()
        client = ClusterClient(source.bootstrap_servers)
        client.write("patience", [Record(0, TIME_MS, None, b"1")])
        until(lambda: client.committed("patient", "patience", 1) == [1], "it is copied")
        destination.kill()
        client.write("patience", [Record(0, TIME_MS, None, b"2")])
        until(lambda: mirror.metric("lag_records") == 1, "it waits for the destination")
        mirror.close_stdin()
        assert mirror.wait() == 0


def test_damaged_batches_are_skipped_one_at_a_time(
    brokers: tuple[BrokerProcess, ...], east: ClusterClient, west: ClusterClient, tmp_path: Path
) -> None:
    east.make_topic("damaged", 1)
    for number in range(2 * len(DAMAGES) + 1):
        east.write("damaged", [Record(0, TIME_MS, None, b"%d" % number)])
    batches = stored_batches(brokers[0].data_dir, "damaged")
    for batch, damage in zip(batches[1::2], DAMAGES.values(), strict=True):
        damage_batch(batch, damage)
    with MirrorProcess(tmp_path / "1", east.servers, west.servers, "damaged") as mirror:
        mirror.serve()
        until_copied(west, "damaged", len(DAMAGES) + 1)
        assert mirror.metric("unreadable_batches_total", topic="damaged") == len(DAMAGES)
        assert mirror.metric("unreadable_offsets_total", topic="damaged") == len(DAMAGES)
        assert "batch unreadable, skipped topic=damaged partition=0 start=1 end=2" in mirror.output
    expected = [b"%d" % number for number in range(0, 2 * len(DAMAGES) + 1, 2)]
    assert values_of(west, "damaged") == [expected]
