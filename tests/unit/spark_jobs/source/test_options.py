"""Options of the source: precedence, errors and defaults as in Spark's Kafka connector."""

import logging
import re
from typing import Any

import pytest

from logbroker.client.raw import EARLIEST, LATEST, TopicPartition
from spark_jobs.errors import InvalidOption
from spark_jobs.offsets.limits import Assigned, AtOffsets, AtTimes, Limit, Matching, Subscribed
from spark_jobs.source.options import (
    BatchOptions,
    SourceOptions,
    StreamOptions,
    read_batch_options,
    read_source_options,
    read_stream_options,
)
from spark_jobs.source.query.option_values import offsets_from_json, offsets_to_json

SERVERS = {"kafka.bootstrap.servers": "log:9092"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def source(**options: str) -> SourceOptions:
    return read_source_options({**SERVERS, "subscribe": "t", **options})


def test_a_password_is_not_in_the_repr() -> None:
    asked = source(**{"kafka.sasl.password": "secret-1"})
    assert asked.properties["sasl.password"] == "secret-1"
    assert "secret-1" not in repr(asked)


def test_defaults() -> None:
    assert source() == SourceOptions(
        properties={"bootstrap.servers": "log:9092"},
        choice=Subscribed(("t",)),
        read_committed=False,
        fail_on_data_loss=True,
        include_headers=False,
        min_partitions=None,
        max_records_per_partition=None,
        poll_timeout_s=120,
        fetch_attempts=3,
        retry_interval_s=1,
    )
    assert read_batch_options({}) == BatchOptions(AtOffsets(EARLIEST), AtOffsets(LATEST))
    assert read_stream_options({}) == StreamOptions(AtOffsets(LATEST), None, None, 900)


def test_names_are_case_insensitive_and_values_are_stripped() -> None:
    given = {
        "KAFKA.Bootstrap.SERVERS": "log:9092",
        # Spaces may belong to a secret.
        "kafka.sasl.password": " secret ",
        "SUBSCRIBE": " a , b ,, a",
        "FAILONDATALOSS": "False",
        "INCLUDEHEADERS": "TRUE",
        "minpartitions": " 7 ",
        "MaxRecordsPerPartition": "100",
        "kafka.Isolation.Level": "read_committed",
        "kafkaconsumer.pollTimeoutMs": "500",
        "fetchoffset.numretries": "9",
        "fetchoffset.retryintervalms": "0",
        "kafka.ssl.ca.location": "ca.pem",
    }
    assert read_source_options(given) == SourceOptions(
        properties={
            "bootstrap.servers": "log:9092",
            "isolation.level": "read_committed",
            "sasl.password": " secret ",
            "ssl.ca.location": "ca.pem",
        },
        choice=Subscribed(("a", "b")),
        read_committed=True,
        fail_on_data_loss=False,
        include_headers=True,
        min_partitions=7,
        max_records_per_partition=100,
        poll_timeout_s=0.5,
        fetch_attempts=9,
        retry_interval_s=0,
    )


def test_an_unknown_option_is_rejected_with_a_suggestion() -> None:
    given = {"endingOffset": '{"t":{"0":5}}', "FAILONDATALOS": "false", "sasl.password": "secret-1"}
    with pytest.raises(InvalidOption) as raised:
        source(**given)
    text = str(raised.value)
    assert text.startswith(
        "unknown options: FAILONDATALOS (failOnDataLoss?), endingOffset (endingOffsets?), "
        "sasl.password; allowed are assign, subscribe, "
    )
    assert text.endswith(", fetchOffset.retryIntervalMs, and client properties as kafka.NAME")
    assert "secret-1" not in text


@pytest.mark.parametrize("name", ["topic", "path", "paths"])
def test_options_that_sparks_connector_ignores_are_ignored_with_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert source(**{name: "x"}) == source()
    assert f"{name} has no effect: use assign or subscribe or subscribePattern" in caplog.text


def test_properties_of_a_created_table_are_accepted() -> None:
    # As Spark 4.3 passes it for `CREATE TABLE ... OPTIONS (...) TBLPROPERTIES (...)`.
    properties = {"provider": "rewind", "owner": "root", "option.subscribe": "t", "k": "v"}
    assert source(**properties) == source()


def test_partitions_are_selected_by_assign_or_pattern() -> None:
    assign = read_source_options({**SERVERS, "assign": '{"t":[0,1]}'})
    assert assign.choice == Assigned(frozenset((T0, T1)))
    pattern = read_source_options({**SERVERS, "subscribePattern": "t.*"})
    assert pattern.choice == Matching(re.compile("t.*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of assign, subscribe, subscribePattern .* none"),
        ({"subscribe": "t", "assign": '{"t":[0]}'}, "given: assign, subscribe"),
        ({"subscribe": " , "}, "subscribe is ','; allowed are comma-separated names"),
        ({"subscribePattern": "t("}, r"subscribePattern is 't\('; allowed are regular"),
        ({"subscribePattern": " "}, "subscribePattern is ''"),
        ({"assign": "t"}, "assign is 't'; allowed are JSON"),
        ({"assign": '{"t":0}'}, r'allowed are JSON such as {"TOPIC":\[0,1\]}'),
        ({"assign": '{"t":[-1]}'}, "assign is"),
        ({"assign": '{"t":[true]}'}, "assign is"),
        ({"assign": "{}"}, "assign is '{}'"),
    ],
)
def test_exactly_one_valid_selection_is_required(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_source_options({**SERVERS, **options})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("failOnDataLoss", "no", "true and false"),
        ("includeHeaders", "1", "true and false"),
        ("minPartitions", "0", "integers from 1"),
        ("maxRecordsPerPartition", "many", "integers from 1"),
        ("kafkaConsumer.pollTimeoutMs", "10s", "integers from 1"),
        ("kafka.isolation.level", "serializable", "read_uncommitted and read_committed"),
    ],
)
def test_an_error_has_option_value_and_allowed_values(name: str, value: str, allowed: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        source(**{name: value})
    assert str(raised.value) == f"{name} is {value!r}; allowed are {allowed}"


@pytest.mark.parametrize(
    "name",
    [
        *("auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit"),
        *("interceptor.classes",),
    ],
)
def test_unsupported_consumer_properties_are_rejected(name: str) -> None:
    with pytest.raises(InvalidOption, match=rf"kafka\.{name} is not supported: "):
        source(**{f"kafka.{name}": "anything"})


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers is missing"):
        read_source_options({"subscribe": "t"})


@pytest.mark.parametrize("name", ["groupIdPrefix", "kafka.group.id"])
def test_group_options_are_ignored_with_a_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    source(**{name: "mine"})
    assert "no group is joined" in caplog.text


START: dict[str, Any] = {
    "startingTimestamp": ("1000", AtTimes(1_000, or_latest=False)),
    "startingOffsetsByTimestamp": ('{"t":{"0":5}}', AtTimes({T0: 5}, or_latest=False)),
    "startingOffsets": ('{"t":{"0":7,"1":-2}}', AtOffsets({T0: 7, T1: EARLIEST})),
}
END: dict[str, Any] = {
    "endingTimestamp": ("2000", AtTimes(2_000)),
    "endingOffsetsByTimestamp": ('{"t":{"0":6}}', AtTimes({T0: 6})),
    "endingOffsets": ('{"t":{"0":9,"1":-1}}', AtOffsets({T0: 9, T1: LATEST})),
}


def test_timestamps_precede_offsets() -> None:
    starts, ends = dict(START), dict(END)
    for (start, (_, first)), (end, (_, last)) in zip(START.items(), END.items(), strict=True):
        given = {name: text for name, (text, _) in (starts | ends).items()}
        assert read_batch_options(given) == BatchOptions(first, last)
        del starts[start], ends[end]
    assert read_batch_options({}) == BatchOptions(AtOffsets(EARLIEST), AtOffsets(LATEST))


@pytest.mark.parametrize(
    ("text", "limit"),
    [("Earliest", AtOffsets(EARLIEST)), ("LATEST", AtOffsets(LATEST)), *[START["startingOffsets"]]],
)
def test_a_stream_may_start_anywhere(text: str, limit: Limit) -> None:
    assert read_stream_options({"startingOffsets": text}).starting == limit


def test_the_strategy_handles_a_start_after_the_last_record() -> None:
    given = {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "Latest"}
    assert read_batch_options(given).starting == AtTimes(1, or_latest=True)
    given = {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"}
    with pytest.raises(InvalidOption, match="Strategy is 'earliest'; allowed are error and latest"):
        read_batch_options(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is or has latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets is or has latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets is or has earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets is or has earliest"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "allowed are JSON .* -2 \\(earliest"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first'; allowed are JSON"),
        ({"startingOffsets": '{"t":{"x":1}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "startingOffsets is"),
        ({"startingOffsets": '{"t":[1]}'}, "startingOffsets is"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "allowed are JSON .* ms since 1970"),
        ({"startingTimestamp": "now"}, "startingTimestamp is 'now'; allowed are integers"),
        (
            {"startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"1":1}}'},
            "startingOffsets and endingOffsets name different partitions: t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
            "startingOffsets is 5 for t-0; allowed are numbers up to endingOffsets, 4",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":5}}',
                "endingOffsetsByTimestamp": '{"t":{"0":4}}',
            },
            "startingOffsetsByTimestamp is 5 for t-0",
        ),
    ],
)
def test_invalid_limits_of_a_batch_are_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_batch_options(options)


def test_stream_options_of_a_batch_are_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read_batch_options({"maxoffsetspertrigger": "10"})
    assert "maxOffsetsPerTrigger has no effect on a batch" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *[({name: text}, f"{name} is only for batches") for name, (text, _) in END.items()],
        (
            {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
            "minOffsetsPerTrigger is 11; allowed are numbers up to maxOffsetsPerTrigger",
        ),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; allowed are a number with ms"),
    ],
)
def test_invalid_options_of_a_stream_are_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        read_stream_options(options)


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("250ms", 0.25), ("10s", 10), ("2m", 120), ("1h", 3600)]
)
def test_the_trigger_delay_has_units(text: str, seconds: float) -> None:
    given = {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "5", "maxTriggerDelay": text}
    assert read_stream_options(given) == StreamOptions(AtOffsets(LATEST), 5, 5, seconds)


def test_offsets_in_a_checkpoint_are_sorted() -> None:
    offsets = {TopicPartition("t", 10): 3, TopicPartition("t", 9): 2, TopicPartition("a", 0): 1}
    assert offsets_to_json(offsets) == {"a": {"0": 1}, "t": {"9": 2, "10": 3}}
    assert list(offsets_to_json(offsets)["t"]) == ["9", "10"]
    assert offsets_from_json(offsets_to_json(offsets)) == offsets
