"""Reads records of events by their places, from `events` and `delivery_log`."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from confluent_kafka import IsolationLevel, TopicPartition

from app.config import Settings
from app.domain.event_index import EventPartition, EventPlace
from app.domain.minute_index import TimedOffset
from app.log.browser.partition_scan import RangeRequest, RawRecord
from app.log.deliveries.delivery import headers_of
from app.log.deliveries.reader_pool import ReaderPool
from app.log.errors import InspectionsBusy, LogUnavailable, TopicMissing
from app.log.event import header_text, is_presentable, members_of, place_name, printable_text
from app.log.inspection.deadline import Deadline
from app.log.lookup_client import LookupClient, check_led
from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.client.admin import EARLIEST, LATEST, since
from logbroker.client.log_bounds import Bounds

AT_A_TIME: Final = 4

_SILENCE_MS: Final = 4_000
_TOPICS: Final = {False: EVENTS, True: DELIVERY_LOG}


class EventRecord(NamedTuple):
    """A record of an event, with the event's id."""

    event_id: str
    place: EventPlace
    record: RawRecord


class EventRange(NamedTuple):
    """The records of a partition in `[start, position)`; without those that cannot be read."""

    records: list[EventRecord]
    position: int
    has_unreadable: bool = False


class EventRecords:
    """Reads ranges of `events` and `delivery_log`. Thread-safe; blocks."""

    def __init__(self, settings: Settings) -> None:
        self._client = LookupClient(
            settings.bootstrap_servers, settings.kafka_properties, _SILENCE_MS
        )
        self._pools = {topic: ReaderPool(settings, topic) for topic in _TOPICS.values()}
        self._slots = threading.BoundedSemaphore(AT_A_TIME)

    def close(self) -> None:
        """Close all clients."""
        for pool in self._pools.values():
            pool.close()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the slots for look-ups.

        Raises:
            InspectionsBusy: `AT_A_TIME` look-ups are running.
        """
        if not self._slots.acquire(blocking=False):
            raise InspectionsBusy("limit of concurrent look-ups of events reached; retry later")
        try:
            yield
        finally:
            self._slots.release()

    def bounds(self, deadline: Deadline) -> dict[EventPartition, Bounds]:
        """Return the bounds of all partitions; a topic that does not exist has none.

        Raises:
            LogUnavailable: the log does not answer.
        """
        found = {}
        for is_delivery_log, topic in _TOPICS.items():
            with suppress(TopicMissing):
                for number, each in self._bounds(topic, deadline).items():
                    found[EventPartition(is_delivery_log, number)] = each
        return found

    def _bounds(self, topic: str, deadline: Deadline) -> dict[int, Bounds]:
        known = self._client.partitions(topic, deadline.request_timeout_s)
        for number in known:
            check_led(known, number)
        partitions = [TopicPartition(topic, each) for each in sorted(known)]
        lows, highs = (
            self._client.admin.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=deadline.request_timeout_s,
            )
            for spec in (EARLIEST, LATEST)
        )
        return {
            each.partition: Bounds(
                *(self._client.found(topic, answers[each]).offset for answers in (lows, highs))
            )
            for each in partitions
        }

    def read(
        self,
        ranges: Mapping[EventPartition, tuple[int, int]],
        deadline: Deadline,
        bytes_max: int,
    ) -> dict[EventPartition, EventRange]:
        """Read a range `[start, end)` of each partition; incomplete after `bytes_max` per topic.

        Raises:
            LogUnavailable: a partition cannot be read.
        """
        by_topic: defaultdict[bool, dict[int, RangeRequest]] = defaultdict(dict)
        for partition, (start, end) in ranges.items():
            by_topic[partition.is_delivery_log][partition.number] = RangeRequest(
                start, end, end - start
            )
        found = {}
        for is_delivery_log, requests in by_topic.items():
            topic = _TOPICS[is_delivery_log]
            with self._pools[topic].reader() as reader:
                results = reader.read(requests, deadline, bytes_max)
                if reader.problems:
                    raise LogUnavailable(f"topic {topic}: {next(iter(reader.problems.values()))}")
                damaged = frozenset(reader.damaged)
            for number, result in results.items():
                partition = EventPartition(is_delivery_log, number)
                records = [_event_record(partition, each) for each in result.records]
                found[partition] = EventRange(records, result.position, number in damaged)
        return found

    def first_deliveries_since(
        self, times_ms: Mapping[int, int], deadline: Deadline
    ) -> dict[int, TimedOffset]:
        """Return the first record of `delivery_log` at a time or later, by partition.

        The offset is -1 if there is none. Call `bounds` before, see `LookupClient`.

        Raises:
            LogUnavailable: the log does not answer.
        """
        if not times_ms:
            return {}
        answers = self._client.admin.list_offsets(
            {TopicPartition(DELIVERY_LOG, each): since(ms) for each, ms in times_ms.items()},
            request_timeout=deadline.request_timeout_s,
        )
        found = {
            place.partition: self._client.found(DELIVERY_LOG, answer)
            for place, answer in answers.items()
        }
        return {number: TimedOffset(each.offset, each.timestamp) for number, each in found.items()}


def _event_record(partition: EventPartition, record: RawRecord) -> EventRecord:
    """The record with its id: a header, for `events` else a member, otherwise its place."""
    event_id = header_text(headers_of(record).get("event-id"))
    if not event_id and not partition.is_delivery_log:
        event_id = printable_text(members_of(record.value or b"").get("id"))
    if not is_presentable(event_id):
        event_id = place_name(_TOPICS[partition.is_delivery_log], record.partition, record.offset)
    return EventRecord(event_id, EventPlace(partition, record.offset), record)
