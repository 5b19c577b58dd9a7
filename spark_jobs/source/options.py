"""The options of the source, with the defaults and checks of Spark's Kafka connector.

Source: Structured Streaming + Kafka Integration Guide.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from logbroker.client.raw import EARLIEST, LATEST
from spark_jobs.errors import InvalidOption
from spark_jobs.offsets.limits import (
    Assigned,
    AtOffsets,
    AtTimes,
    Choice,
    Limit,
    Matching,
    Subscribed,
)
from spark_jobs.source.query.option_values import OptionReader, invalid_value, read_assigned

_log: Final = logging.getLogger(__name__)

CHOICES: Final = ("assign", "subscribe", "subscribePattern")
_STARTINGS: Final = (
    *("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
    "startingOffsetsByTimestampStrategy",
)
_ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
LIMITS: Final = frozenset(name.lower() for name in (*_STARTINGS, *_ENDINGS))
"""The options, in lower case, that set where a read starts or ends."""

_STREAM_OPTIONS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_GROUP_OPTIONS: Final = ("groupIdPrefix", "kafka.group.id")
NAMES: Final = (
    *(*CHOICES, *_STARTINGS, *_ENDINGS, *_STREAM_OPTIONS, "groupIdPrefix"),
    *("failOnDataLoss", "includeHeaders", "minPartitions", "maxRecordsPerPartition"),
    *("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)
"""All options except those of the client, `kafka.…`."""

_IGNORED: Final = ("topic", "path", "paths")
"""An option of sinks, and what Spark adds for `load("...")`; the connector ignores them, too."""

POLL_TIMEOUT_MS: Final = 120_000
"""The default of `spark.network.timeout`, from which the connector takes its own."""

FETCH_ATTEMPTS: Final = 3
RETRY_INTERVAL_MS: Final = 1_000
MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000

_UNSUPPORTED: Final = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are binary columns: cast or decode them in Spark",
    "value.deserializer": "values are binary columns: cast or decode them in Spark",
    "enable.auto.commit": "no offsets are committed to Kafka; Spark stores them in its checkpoint",
    "interceptor.classes": "records must not be modified",
}
"""Properties that the source rejects, as the connector does."""


@dataclass(frozen=True)
class SourceOptions:
    """The options that batches and streams share."""

    properties: Mapping[str, str] = field(repr=False)
    """Properties of the Kafka client, without `kafka.`."""

    choice: Choice
    read_committed: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    poll_timeout_s: float
    fetch_attempts: int
    retry_interval_s: float


@dataclass(frozen=True)
class BatchOptions:
    """Where a batch starts and ends."""

    starting: Limit
    ending: Limit


@dataclass(frozen=True)
class StreamOptions:
    """Where a new stream starts, and the size of its micro-batches."""

    starting: Limit
    max_offsets: int | None
    min_offsets: int | None
    max_delay_s: float


def read_source_options(options: Mapping[str, str]) -> SourceOptions:
    """The options that batches and streams share.

    Raises:
        InvalidOption: an option is missing, malformed, or not an option of a source.
    """
    reader = OptionReader(options)
    _reject_unknown(options)
    properties = reader.prefixed("kafka.")
    _reject_properties(properties)
    isolation = reader.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"))
    if reader.given(_GROUP_OPTIONS):
        _log.warning("groupIdPrefix and kafka.group.id have no effect: no group is joined")
    for name in reader.given(_IGNORED):
        _log.warning("%s has no effect: use %s", name, " or ".join(CHOICES))
    return SourceOptions(
        properties=properties,
        choice=_choice(reader),
        read_committed=isolation == "read_committed",
        fail_on_data_loss=reader.boolean("failOnDataLoss", default=True),
        include_headers=reader.boolean("includeHeaders", default=False),
        min_partitions=reader.number_if_given("minPartitions"),
        max_records_per_partition=reader.number_if_given("maxRecordsPerPartition"),
        poll_timeout_s=reader.number("kafkaConsumer.pollTimeoutMs", POLL_TIMEOUT_MS) / 1000,
        fetch_attempts=reader.number("fetchOffset.numRetries", FETCH_ATTEMPTS),
        retry_interval_s=reader.number("fetchOffset.retryIntervalMs", RETRY_INTERVAL_MS, least=0)
        / 1000,
    )


def read_batch_options(options: Mapping[str, str]) -> BatchOptions:
    """The options of a batch.

    Raises:
        InvalidOption: a limit is malformed or only for streams, or the start is after the end.
    """
    reader = OptionReader(options)
    starting = _starting(reader, EARLIEST)
    ending = _ending(reader)
    _reject_place(
        starting, LATEST, "startingOffsets", "latest (-1)", "not allowed as the start of a batch"
    )
    _reject_place(
        ending, EARLIEST, "endingOffsets", "earliest (-2)", "not allowed as the end of a batch"
    )
    _reject_contradiction(starting, ending)
    for name in reader.given(_STREAM_OPTIONS):
        _log.warning("%s has no effect on a batch", name)
    return BatchOptions(starting, ending)


def read_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """The options of a stream.

    Raises:
        InvalidOption: an option is malformed or only for batches, or two contradict each other.
    """
    reader = OptionReader(options)
    for name in reader.given(_ENDINGS):
        raise InvalidOption(f"{name} is only for batches: a stream has no end")
    most = reader.number_if_given("maxOffsetsPerTrigger")
    least = reader.number_if_given("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise InvalidOption(
            f"minOffsetsPerTrigger is {least}; allowed are numbers up to "
            f"maxOffsetsPerTrigger, {most}"
        )
    delay_ms = reader.span_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS)
    return StreamOptions(_starting(reader, LATEST), most, least, delay_ms / 1000)


def _reject_unknown(options: Mapping[str, str]) -> None:
    """Reject misspelt options, with which other records would be read than requested."""
    if "provider" in options:
        return  # `CREATE TABLE ... USING rewind` passes all properties of the table.
    known = {name.lower(): name for name in (*NAMES, *_IGNORED)}
    unknown = []
    for name in sorted(options):
        if name.lower() not in known and not name.lower().startswith("kafka."):
            near = get_close_matches(name.lower(), known, n=1)
            unknown.append(f"{name} ({known[near[0]]}?)" if near else name)
    if unknown:
        raise InvalidOption(
            f"unknown options: {', '.join(unknown)}; allowed are {', '.join(NAMES)}, "
            "and client properties as kafka.NAME"
        )


def _reject_properties(properties: Mapping[str, str]) -> None:
    for name, instead in _UNSUPPORTED.items():
        if name in properties:
            raise InvalidOption(f"kafka.{name} is not supported: {instead}")
    if not properties.get("bootstrap.servers"):
        raise InvalidOption("kafka.bootstrap.servers is missing; it has the form HOST:PORT,...")


def _choice(reader: OptionReader) -> Choice:
    given = reader.given(CHOICES)
    if len(given) != 1:
        raise InvalidOption(
            f"exactly one of {', '.join(CHOICES)} is required; given: {', '.join(given) or 'none'}"
        )
    name, text = given[0], reader.text(given[0]) or ""
    if name == "assign":
        return Assigned(read_assigned(name, text))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
        if not topics:
            raise invalid_value(name, text, "comma-separated names of topics")
        return Subscribed(topics)
    try:
        if text:
            return Matching(re.compile(text))
    except re.error:
        pass
    raise invalid_value(name, text, "regular expressions valid in Java and Python")


def _starting(reader: OptionReader, default: int) -> Limit:
    strategy = reader.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    return _limit(reader, "starting", default, or_latest=strategy == "latest")


def _ending(reader: OptionReader) -> Limit:
    return _limit(reader, "ending", LATEST, or_latest=True)


def _limit(reader: OptionReader, end: str, default: int, *, or_latest: bool) -> Limit:
    """The limit of one end; a time for all precedes times for each, and these precede offsets."""
    if (time_ms := reader.number_if_given(f"{end}Timestamp", least=0)) is not None:
        return AtTimes(time_ms, or_latest)
    if f"{end}OffsetsByTimestamp" in reader:
        return AtTimes(reader.times_ms(f"{end}OffsetsByTimestamp"), or_latest)
    text = reader.text(f"{end}Offsets")
    if text is None:
        return AtOffsets(default)
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    return AtOffsets(reader.offsets(f"{end}Offsets") if word is None else word)


def _reject_place(limit: Limit, tp: int, name: str, value: str, why: str) -> None:
    if isinstance(limit, AtTimes):
        return
    offsets = {limit.offsets} if isinstance(limit.offsets, int) else set(limit.offsets.values())
    if tp in offsets:
        raise InvalidOption(f"{name} is or has {value}: {why}")


def _reject_contradiction(starting: Limit, ending: Limit) -> None:
    """Check that two limits of the same kind, for each partition, fit each other."""
    match starting, ending:
        case AtOffsets(dict(first)), AtOffsets(dict(last)):
            kind = "Offsets"
        case AtTimes(dict(first)), AtTimes(dict(last)):
            kind = "OffsetsByTimestamp"
        case _:
            return
    if first.keys() != last.keys():
        named = ", ".join(map(str, sorted(first.keys() ^ last.keys())))
        raise InvalidOption(f"starting{kind} and ending{kind} name different partitions: {named}")
    for tp, start in first.items():
        if start > last[tp] >= 0:
            raise InvalidOption(
                f"starting{kind} is {start} for {tp}; allowed are numbers up to "
                f"ending{kind}, {last[tp]}"
            )
