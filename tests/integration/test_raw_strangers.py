"""The raw client and brokers that are cut off, silent, throttled, old, moved, or no brokers."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import for_code
from kafka.protocol.consumer.fetch import FetchResponse

from logbroker.client.errors import (
    BrokersUnavailable,
    ClientError,
    FetchFailed,
    NotAuthorized,
    OffsetGone,
    TopicReplaced,
    UnknownTopic,
)
from logbroker.client.raw import (
    EARLIEST,
    LATEST,
    AbortedTransaction,
    RawChunk,
    RawCluster,
    RawReader,
    TopicPartition,
)
from logbroker.records.batch import read_header
from tests.support.http.certificates import self_signed
from tests.support.kafka.scripted_broker import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    TOPIC,
    ScriptedBroker,
)
from tests.support.processes.waiting import until

PLACE = TopicPartition(TOPIC, 0)
SHORT_S = 0.5
"""For what never comes: nothing else may depend on it."""


@contextmanager
def reading(
    broker: ScriptedBroker,
    *,
    start: int = 0,
    end: int | None = None,
    timeout_s: float = 60.0,
    properties: dict[str, str] | None = None,
    **options: Any,
) -> Iterator[RawReader]:
    settings = broker.properties | (properties or {})
    with (
        RawCluster(settings, timeout_s=timeout_s) as cluster,
        RawReader(cluster, PLACE, start, broker.end if end is None else end, **options) as reader,
    ):
        yield reader


def content(chunks: list[RawChunk]) -> list[bytes]:
    return [bytes(chunk.records) for chunk in chunks]


def read_all(broker: ScriptedBroker, **options: Any) -> list[bytes]:
    with reading(broker, **options) as reader:
        return content(list(reader))


@pytest.mark.parametrize("highest", range(4, 18))
def test_every_version_of_fetch_returns_the_same_records(highest: int) -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.versions[FETCH] = (4, highest)

        assert read_all(broker) == broker.batches
        assert {asked.version for asked in broker.asked} == {highest}


@pytest.mark.parametrize(("lowest", "highest"), [(0, 1), (0, 4), (0, 7), (0, 9), (5, 12)])
def test_every_version_of_metadata_leads_to_the_records(lowest: int, highest: int) -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.versions[METADATA] = (lowest, highest)

        assert read_all(broker) == broker.batches
        # Metadata has topic ids from version 10; Fetch uses only ids from version 13.
        assert {asked.version for asked in broker.asked} == {17 if highest >= 10 else 12}


@pytest.mark.parametrize("highest", range(1, 9))
def test_every_version_of_list_offsets_returns_the_same_offsets(highest: int) -> None:
    with ScriptedBroker(3, 2) as broker, RawCluster(broker.properties) as cluster:
        broker.versions[LIST_OFFSETS] = (1, highest)

        assert cluster.offsets({PLACE: EARLIEST}) == {PLACE: 0}
        assert cluster.offsets({PLACE: LATEST}) == {PLACE: 5}
        assert cluster.offsets({PLACE: 1_000}) == {PLACE: None}


@pytest.mark.parametrize("versions", [(0, 3), (18, 20)])
def test_a_broker_without_a_common_version_is_reported_immediately(
    versions: tuple[int, int],
) -> None:
    with ScriptedBroker(1) as broker:
        broker.versions[FETCH] = versions

        with pytest.raises(BrokersUnavailable, match="FetchRequest versions"):
            read_all(broker)
        assert broker.connections == 1


def test_the_next_request_is_on_its_way_while_a_chunk_is_decoded() -> None:
    with ScriptedBroker(3, 2, 2) as broker, reading(broker) as reader:
        next(reader)

        until(lambda: [asked.offset for asked in broker.asked] == [0, 3], "the next was asked for")


def test_nothing_is_asked_for_behind_the_range() -> None:
    with ScriptedBroker(3, 2, 2) as broker:
        assert read_all(broker, end=4) == broker.batches[:2]
        assert [asked.offset for asked in broker.asked] == [0, 3]


def test_a_throttling_broker_gets_no_requests_ahead() -> None:
    with ScriptedBroker(3, 2) as broker, reading(broker) as reader:
        broker.fetches.append({"throttle_time_ms": 200})

        first = next(reader)
        assert [asked.offset for asked in broker.asked] == [0]
        assert content([first, *reader]) == broker.batches


def test_an_empty_throttled_response_keeps_the_connection() -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.extend([{"throttle_time_ms": 1, "is_empty": True}] * 3)

        assert read_all(broker) == broker.batches
        assert broker.connections == 1


def test_an_answer_without_the_partition_is_asked_for_again() -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.append({"is_empty": True})

        assert read_all(broker) == broker.batches
        assert broker.connections == 2


def test_a_throttle_is_no_longer_than_a_broker_is_waited_for() -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.append({"throttle_time_ms": 2**31 - 1})

        assert read_all(broker, timeout_s=2.0) == broker.batches


def test_the_fetch_size_grows_with_the_range_up_to_its_limit() -> None:
    with ScriptedBroker(3) as broker:
        read_all(broker)
        with reading(broker, end=10**9, bytes_max=5_000_000) as reader:
            next(reader)
        short, long = broker.asked[:2]

    assert short.bytes_max < 100_000
    assert long.bytes_max == 5_000_000


def test_no_answer_is_asked_for_that_would_be_refused_as_too_large() -> None:
    with ScriptedBroker(3) as broker:
        read_all(broker, properties={"receive.message.max.bytes": "65536"})

        assert broker.asked[0].bytes_max < 65_536


@pytest.mark.parametrize(
    ("properties", "argument", "level"),
    [
        ({}, None, 0),
        ({}, True, 1),
        ({"isolation.level": "read_committed"}, None, 1),
        ({"isolation.level": "read_committed"}, False, 0),
    ],
)
def test_transactions_are_read_as_the_caller_says_or_else_the_property(
    properties: dict[str, str], argument: bool | None, level: int
) -> None:
    with ScriptedBroker(3) as broker:
        read_all(broker, properties=properties, read_committed=argument)

        assert {asked.isolation_level for asked in broker.asked} == {level}


def test_each_chunk_has_aborted_transactions_and_log_offsets() -> None:
    with ScriptedBroker(3) as broker:
        broker.fetches.append(
            {
                "aborted_transactions": [
                    _aborted(producer_id=7, first_offset=1),
                    _aborted(producer_id=8, first_offset=2),
                ],
                "high_watermark": 30,
                "last_stable_offset": 20,
                "log_start_offset": 2,
            }
        )
        with reading(broker, start=1, end=3) as reader:
            (chunk,) = reader

    assert chunk.aborted == (AbortedTransaction(7, 1), AbortedTransaction(8, 2))
    assert chunk[1:7] == (1, 3, 3, 2, 20, 30)


def _aborted(**fields: int) -> Any:
    partition = FetchResponse.FetchableTopicResponse.PartitionData
    return partition.AbortedTransaction(version=12, **fields)


def test_a_preferred_read_replica_is_ignored() -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.append({"preferred_read_replica": 9, "records": b""})

        assert read_all(broker) == broker.batches
        assert [asked.version for asked in broker.asked] == [17, 10, 10]


@pytest.mark.parametrize("api_key", [API_VERSIONS, METADATA, FETCH])
def test_an_answer_that_is_cut_anywhere_is_asked_for_again(api_key: int) -> None:
    with ScriptedBroker(3, 2) as broker:
        sizes = _answer_sizes(broker, api_key)
        for size in range(sizes):
            broker.changes[api_key].append(itemgetter(slice(size)))

            assert read_all(broker) == broker.batches, f"cut behind {size} bytes"
            assert not broker.changes[api_key]


def test_offsets_that_are_cut_anywhere_are_asked_for_again() -> None:
    with ScriptedBroker(3, 2) as broker:
        for size in range(_answer_sizes(broker, LIST_OFFSETS)):
            broker.changes[LIST_OFFSETS].append(itemgetter(slice(size)))

            with RawCluster(broker.properties) as cluster:
                assert cluster.offsets({PLACE: LATEST}) == {PLACE: 5}
            assert not broker.changes[LIST_OFFSETS]


def _answer_sizes(broker: ScriptedBroker, api_key: int) -> int:
    """How long the first answer of this kind is."""
    seen: list[int] = []

    def note(frame: bytes) -> bytes:
        seen.append(len(frame))
        return frame

    broker.changes[api_key].append(note)
    with RawCluster(broker.properties) as cluster:
        cluster.offsets({PLACE: LATEST})
    read_all(broker)
    return seen[0]


def test_a_second_answer_that_is_cut_is_asked_for_again_from_where_the_first_one_ended() -> None:
    with ScriptedBroker(3, 2, 2) as broker, reading(broker) as reader:
        first = next(reader)
        broker.changes[FETCH].append(lambda frame: frame[:50])

        assert content([first, *reader]) == broker.batches


NO_BROKERS: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("http", lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "receive.message.max.bytes"),
    ("huge", lambda _: b"\x7f\xff\xff\xff" + bytes(100), "response of 2147483647 bytes"),
    ("negative", lambda _: b"\xff\xff\xff\xff" + bytes(100), "response of -1 bytes"),
    ("other number", lambda frame: frame[:4] + b"\xff" + frame[5:], "unexpected correlation id"),
    ("cut inside", lambda frame: b"\x00\x00\x00\x0a" + frame[4:14], "malformed response"),
]


@pytest.mark.parametrize(
    ("change", "settings"), [each[1:] for each in NO_BROKERS], ids=[each[0] for each in NO_BROKERS]
)
@pytest.mark.parametrize("api_key", [METADATA, FETCH])
def test_persistent_malformed_responses_are_reported(
    api_key: int, change: Callable[[bytes], bytes], settings: str
) -> None:
    with ScriptedBroker(3) as broker:
        broker.changes[api_key].extend([change] * 100_000)

        with pytest.raises(BrokersUnavailable) as refused:
            read_all(broker, timeout_s=SHORT_S)
        assert settings in str(refused.value)


def test_a_broker_that_is_silent_is_asked_again_over_another_connection() -> None:
    with ScriptedBroker(3, 2) as broker:
        for api_key in (API_VERSIONS, METADATA, FETCH):
            broker.changes[api_key].append(lambda _: None)

        assert read_all(broker, properties={"request.timeout.ms": "700"}) == broker.batches
        assert broker.connections >= 4


RETRIED = [-1, 3, 5, 6, 7, 9, 13, 56, 74, 75, 78, 100, 103]


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: for_code(code).__name__)
@pytest.mark.parametrize("level", ["answer_error_code", "error_code"])
def test_what_time_or_new_metadata_may_mend_is_tried_again(code: int, level: str) -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.append({level: code, "records": b""})
        broker.offsets.append({"error_code": code, "offset": -1})

        assert read_all(broker) == broker.batches
        with RawCluster(broker.properties) as cluster:
            assert cluster.offsets({PLACE: LATEST}) == {PLACE: 5}
        assert not broker.fetches
        assert not broker.offsets


@pytest.mark.parametrize(
    ("code", "error"),
    [(29, NotAuthorized), (17, UnknownTopic), (2, FetchFailed), (76, FetchFailed)],
)
def test_permanent_errors_are_reported_immediately(code: int, error: type[ClientError]) -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.extend([{"error_code": code, "records": b""}] * 2)
        with pytest.raises(error, match=f"{TOPIC}-0: {for_code(code).message}"):
            read_all(broker)

        broker.offsets.append({"error_code": code, "offset": -1})
        with RawCluster(broker.properties) as cluster, pytest.raises(error):
            cluster.offsets({PLACE: LATEST})

        assert len(broker.asked) == 1


def test_a_missing_offset_is_reported_with_the_range_of_the_log() -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.append({"error_code": 1, "records": b""})

        with pytest.raises(OffsetGone) as gone:
            read_all(broker, start=7, end=9)
        error = gone.value

    assert str(error) == f"{TOPIC}-0 has no offset 7; available: [0, 5)"
    assert (error.topic, error.partition, error.offset) == (TOPIC, 0, 7)
    assert (error.log_start, error.log_end) == (0, 5)


def test_an_offset_that_the_log_holds_after_all_is_asked_for_again() -> None:
    with ScriptedBroker(3, 2) as broker:
        broker.fetches.append({"error_code": 1, "records": b""})

        assert read_all(broker) == broker.batches


def test_a_recreated_topic_is_detected_by_its_id() -> None:
    with ScriptedBroker(3, 2) as broker, reading(broker) as reader:
        broker.fetches.extend([{}, {"error_code": 100, "records": b""}])
        next(reader)
        broker.topic_id = UUID(int=2)

        with pytest.raises(TopicReplaced, match=f"{UUID(int=2)}.*{UUID(int=1)}"):
            next(reader)


def test_offsets_of_a_former_topic_are_not_read_of_the_new_one() -> None:
    with ScriptedBroker(3, 2) as broker:
        with pytest.raises(TopicReplaced):
            read_all(broker, topic_id=UUID(int=9))

        assert broker.asked == []


def test_a_timeout_before_the_end_reports_the_log_end() -> None:
    with ScriptedBroker(3) as broker:
        with pytest.raises(BrokersUnavailable, match=r"at offset 3 .* ends at offset 3"):
            read_all(broker, end=4, timeout_s=2.0)

        broker.fetches.extend([{"records": b"", "last_stable_offset": 0}] * 100_000)
        with pytest.raises(BrokersUnavailable, match="ends at offset 0"):
            read_all(broker, timeout_s=2.0, read_committed=True)


def test_concurrent_readers_do_not_mix_their_responses() -> None:
    with ScriptedBroker(3, 2, 2) as broker, RawCluster(broker.properties) as cluster:
        first = RawReader(cluster, PLACE, 0, broker.end)
        second = RawReader(cluster, PLACE, 3, broker.end)
        interleaved = [next(first), next(second), next(first), next(second), next(first)]

        assert content(interleaved) == [broker.batches[number] for number in (0, 1, 1, 2, 2)]
        assert list(first) == list(second) == []


def test_a_reader_that_is_left_early_spoils_nothing_for_the_next_one() -> None:
    with ScriptedBroker(3, 2, 2) as broker, RawCluster(broker.properties) as cluster:
        with RawReader(cluster, PLACE, 0, broker.end) as reader:
            next(reader)

        # On a connection with a pending response, that response would come first.
        assert content(list(RawReader(cluster, PLACE, 0, broker.end))) == broker.batches


def test_a_connection_is_used_again_by_the_next_reader() -> None:
    with ScriptedBroker(3, 2) as broker, RawCluster(broker.properties) as cluster:
        for _ in range(3):
            list(RawReader(cluster, PLACE, 0, broker.end))

        assert broker.connections == 1


def test_a_chunk_stays_as_it_is_while_others_come() -> None:
    with ScriptedBroker(3, 2, 2) as broker, reading(broker) as reader:
        chunks = list(reader)

        assert content(chunks) == broker.batches
        assert all(chunk.records.readonly for chunk in chunks)


def test_a_new_topic_is_awaited_and_an_unknown_one_is_reported() -> None:
    with ScriptedBroker(3) as broker, RawCluster(broker.properties, timeout_s=SHORT_S) as cluster:
        broker.topic_error = 5
        with pytest.raises(BrokersUnavailable, match="LEADER_NOT_AVAILABLE"):
            cluster.topics([TOPIC])

        broker.topic_error = 3
        with pytest.raises(UnknownTopic, match=TOPIC):
            cluster.topics([TOPIC])
        assert cluster.topics(None) == {}

        broker.topic_error = 29
        with pytest.raises(NotAuthorized):
            cluster.topics([TOPIC])


def test_a_broker_that_does_not_know_a_topic_yet_is_not_believed_alone() -> None:
    with ScriptedBroker(3) as late, ScriptedBroker(3) as broker:
        late.topic_error = 3
        for servers in ((late, broker), (broker, late)):
            settings = ",".join(each.properties["bootstrap.servers"] for each in servers)
            for _ in range(4):  # the first server is chosen at random
                with RawCluster({"bootstrap.servers": settings}) as cluster:
                    assert list(cluster.topics([TOPIC])) == [TOPIC]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    with ScriptedBroker(3) as broker:
        broker.leaders.extend([-1, -1])

        assert read_all(broker) == broker.batches
        assert not broker.leaders


def test_an_unknown_partition_is_reported() -> None:
    with (
        ScriptedBroker(3) as broker,
        RawCluster(broker.properties) as cluster,
        pytest.raises(UnknownTopic, match="has no partition 7"),
    ):
        cluster.offsets({TopicPartition(TOPIC, 7): LATEST})


def test_every_unreachable_broker_is_tried_and_the_last_error_reported() -> None:
    properties = {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2"}

    with (
        RawCluster(properties, timeout_s=SHORT_S) as cluster,
        pytest.raises(BrokersUnavailable, match=r"asking for topics .*127\.0\.0\.1:[12]"),
    ):
        cluster.topics(None)


def test_one_broker_that_listens_is_enough() -> None:
    with ScriptedBroker(3) as broker:
        servers = f"127.0.0.1:1,127.0.0.1:{broker.port}"
        with RawCluster({"bootstrap.servers": servers}) as cluster:
            assert list(cluster.topics(None)) == [TOPIC]


def test_an_unsupported_mechanism_is_reported_with_the_supported_ones() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    user = {"sasl.username": "me", "sasl.password": "secret-word"}
    with ScriptedBroker(3) as broker:
        with pytest.raises(NotAuthorized, match="does not support PLAIN; supported: GSSAPI"):
            read_all(broker, properties=login | user)
        assert broker.connections == 1


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1, with its key in the same file."""
    return self_signed(tmp_path_factory.mktemp("tls"), "127.0.0.1").both


def test_a_client_shows_its_own_certificate_where_a_broker_asks_for_one(identity: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(identity))
    context.load_cert_chain(identity)
    context.verify_mode = ssl.CERT_REQUIRED
    trust = {"security.protocol": "SSL", "ssl.ca.location": str(identity)}
    shown = {"ssl.keystore.location": str(identity), "ssl.keystore.type": "PEM"}

    with ScriptedBroker(3, 2, context=context) as broker:
        assert read_all(broker, properties=trust | shown) == broker.batches
        with pytest.raises(BrokersUnavailable):
            read_all(broker, properties=trust, timeout_s=SHORT_S)


def test_an_untrusted_certificate_is_reported_immediately(identity: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity)

    with ScriptedBroker(3, context=context) as broker:
        with pytest.raises(NotAuthorized, match="is not trusted: self-signed certificate"):
            read_all(broker, properties={"security.protocol": "SSL"})
        assert broker.connections == 1

        unsafe = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
        assert read_all(broker, properties=unsafe) == broker.batches


def test_a_certificate_of_another_host_is_not_trusted_unless_that_is_said(identity: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity)
    trust = {"security.protocol": "SSL", "ssl.truststore.location": str(identity)}

    with ScriptedBroker(3, context=context) as broker:
        elsewhere = {**trust, "bootstrap.servers": f"localhost:{broker.port}"}
        with pytest.raises(NotAuthorized, match="localhost"):
            read_all(broker, properties=elsewhere)

        unchecked = {**elsewhere, "ssl.endpoint.identification.algorithm": ""}
        assert read_all(broker, properties=unchecked) == broker.batches


faults = st.lists(
    st.one_of(
        st.builds(lambda share: ("cut", share), st.floats(0, 1, exclude_max=True)),
        st.builds(lambda code: ("error_code", code), st.sampled_from(RETRIED)),
        st.builds(lambda code: ("answer_error_code", code), st.sampled_from(RETRIED)),
        st.just(("is_empty", True)),
        st.just(("records", b"")),
        st.just(("preferred_read_replica", 9)),
        st.none(),
    ),
    max_size=6,
)


@given(faults, st.integers(0, 8), st.integers(0, 8))
def test_whatever_happens_on_the_way_the_records_come_once_and_in_order(
    happens: list[tuple[str, Any] | None], start: int, end: int
) -> None:
    with ScriptedBroker(3, 2, 1, 2) as broker:
        for fault in happens:
            if fault is not None and fault[0] == "cut":
                broker.changes[FETCH].append(partial(_cut, share=fault[1]))
            else:
                broker.fetches.append(dict([fault]) if fault else {})

        with reading(broker, start=start, end=end) as reader:
            chunks = list(reader)

    wanted = [
        each
        for each in broker.batches
        if read_header(each).next_offset > start and read_header(each).base_offset < end
    ]
    assert content(chunks) == (wanted if start < end else [])


def _cut(frame: bytes, share: float) -> bytes:
    """The beginning of a frame."""
    return frame[: int(len(frame) * share)]
