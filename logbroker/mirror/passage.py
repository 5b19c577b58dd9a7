"""One passage: records from the committed positions on, by a consumer and a producer of its own.

Everything here runs on one thread: the consumer must not be called by two.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from logbroker.mirror.clients import CLIENT_LOG, Complaints
from logbroker.mirror.held import HeldPartitions, Place
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.place_text import text_of
from logbroker.mirror.received_reports import MirrorReports
from logbroker.mirror.sender import Lane, PassageFailed, Sender
from logbroker.mirror.topic_ids import TopicIds
from logbroker.mirror.topic_watch import TopicWatch

_log: Final = logging.getLogger(__name__)

RECORDS_MAX: Final = 500
"""Records that are taken at once from what was read ahead."""

WAIT_S: Final = 0.02
"""The longest a read blocks; acknowledgements are heard between two."""

COMMIT_S: Final = 1.0
"""Time between two commits: as much may come twice after a crash."""

FULL_WAIT_S: Final = 0.05
HOLD_AFTER_S: Final = 1.0
"""How long reading waits for room before partitions are paused, which empties what was read."""

DRAIN_S: Final = 5.0
"""How long the destination is waited for, when partitions are given away and at the end."""

ANSWER_S: Final = 5.0
ENDS_S: Final = 0.5
RETRY_S: Final = 1.0

_LATEST: Final = -1
"""What Kafka's ListOffsets takes for the time after the newest record."""

TOPIC_REPLACED: Final = "topic_replaced"
"""What `errors_total` calls a topic that was deleted at the source and made anew."""

RECORDS_LOST: Final = "records_lost"
"""What `errors_total` calls a position that the source does not have any more."""

_PASSING: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  the client's public names
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    )
)
"""What the client tells and then goes on by itself, having passed nothing over."""


class Share(NamedTuple):
    """What is copied: by topic, how many partitions the destination has, and who wants to know.

    When the watch tells of other topics, there is another share. A position is stored with its
    topic's id, and means nothing for a topic with another.
    `has_begun` is called whenever this mirror was given partitions, be they none.
    """

    partitions: Mapping[str, int]
    ids: TopicIds
    watch: TopicWatch
    has_begun: Callable[[], None]


class Passage:
    """Copies from the committed positions on, until it is stopped or something fails."""

    def __init__(
        self,
        settings: dict[str, Any],
        topics: Sequence[str],
        share: Share,
        sender: Sender,
        reports: MirrorReports,
        counts: MirrorCounts,
        held: HeldPartitions,
        stopping: Event,
    ) -> None:
        """`settings` are those of the consumer."""
        self._topics = list(topics)
        self._share = share
        self._sender = sender
        self._reports = reports
        self._counts = counts
        self._held = held
        self._stopping = stopping
        self._complaints = Complaints("source", counts.error)
        self._lanes: dict[Place, Lane] = {}
        self._waiting: deque[Message] = deque()
        self._full_since_s: float | None = None
        self._is_full = False
        self._paused: set[Place] = set()
        self._is_outdated = False
        self._failure: PassageFailed | None = None
        self._due: dict[Place, int] = {}
        self._next_commit_s = time.monotonic() + COMMIT_S
        self._consumer = Consumer(
            settings | {"error_cb": self._complaints.note, "on_commit": self._note_commit},
            logger=CLIENT_LOG,
        )

    def run(self) -> None:
        """Copy until stopped, or until there are topics or partitions that it does not know.

        At its end everything is committed that the destination acknowledged.

        Raises:
            PassageFailed: there was a failure after which nothing may go on behind it.
        """
        try:
            self._subscribe()
            while not (self._stopping.is_set() or self._is_outdated):
                self._turn()
            self._finish()
        except KafkaException as error:
            self._sender.flush(DRAIN_S)
            raise PassageFailed(error.args[0].name(), error.args[0].str()) from error
        finally:
            self._close()

    def _subscribe(self) -> None:
        if not self._topics:
            # To the client, none are the end of a subscription: no group tells of a share.
            self._share.has_begun()
            return
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _turn(self) -> None:
        self._sender.poll(0)
        if self._failure is not None:
            raise self._failure
        if self._waiting:
            self._send_waiting()
        else:
            self._pause()
            self._read()
        self._keep_up()

    def _read(self) -> None:
        # `consume` waits until it has all it may take. So wait for one, then take what is there.
        first = self._consumer.poll(WAIT_S)
        if first is not None:
            self._waiting.append(first)
            self._waiting.extend(self._consumer.consume(RECORDS_MAX - 1, 0))

    def _send_waiting(self) -> None:
        waiting, lanes, send = self._waiting, self._lanes, self._sender.send
        while waiting:
            message = waiting[0]
            if message.error() is not None:
                self._heed(message)
            else:
                # One that was given away meanwhile is another mirror's to send.
                lane = lanes.get((message.topic(), message.partition()))  # type: ignore[arg-type]
                if lane is not None and not send(lane, message):
                    self._wait_for_room()
                    return
            waiting.popleft()
        self._full_since_s = None
        self._is_full = False

    def _wait_for_room(self) -> None:
        """Let the destination catch up; one that is away long must not cost the membership."""
        self._sender.poll(FULL_WAIT_S)
        now_s = time.monotonic()
        if self._full_since_s is None:
            self._full_since_s = now_s
        if now_s - self._full_since_s < HOLD_AFTER_S:
            return
        self._is_full = True
        self._pause()
        late = self._consumer.poll(0)
        if late is not None:
            self._waiting.append(late)

    def _pause(self) -> None:
        """Read nothing of what is held back, and nothing at all while there is no room."""
        now_s = time.monotonic()
        wanted = {p for p in self._lanes if self._is_full or self._held.is_held(p, now_s)}
        if wanted != self._paused:
            self._consumer.pause(_places(wanted - self._paused))
            self._consumer.resume(_places(self._paused - wanted))
            self._paused = wanted

    def _heed(self, message: Message) -> None:
        """Take what the source says in place of a record."""
        error = message.error()
        assert error is not None
        lane = self._lanes.get((message.topic(), message.partition()))  # type: ignore[arg-type]
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            offset = message.offset()
            if lane is not None and offset is not None:
                # Behind the last record there may be marks of transactions, which are none.
                lane.progress.skip_to(max(offset, lane.progress.next_offset or 0))
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001
            if lane is not None:
                self._go_on_at_earliest(lane)
        elif error.code() in _PASSING:
            self._complaints.note(error)
        else:
            where = "" if lane is None else f" of {lane.topic}-{lane.partition}"
            # What stands before it goes on.
            self._sender.flush(DRAIN_S)
            raise PassageFailed(error.name(), f"the source{where}: {error.str()}", lane)

    def _go_on_at_earliest(self, lane: Lane) -> None:
        """Say what is lost where the source does not have the position any more."""
        place = TopicPartition(lane.topic, lane.partition)
        low, end = self._consumer.get_watermark_offsets(place, timeout=ANSWER_S)
        position = lane.progress.next_offset or 0
        lost = max(0, low - position)
        lane.counts.lost += lost
        self._counts.error(RECORDS_LOST)
        _log.error(
            "position is not at the source topic=%s partition=%s position=%s earliest=%s end=%s "
            "lost=%s",
            *(lane.topic, lane.partition, position, low, end, lost),
        )
        lane.progress.skip_to(low)
        # The client has ended reading it, and takes no other position while it is assigned.
        self._consumer.incremental_unassign([place])
        self._consumer.incremental_assign([TopicPartition(lane.topic, lane.partition, low)])

    def _keep_up(self) -> None:
        """Commit now and then; after the audit reports that cover it."""
        if not self._reports.is_settled():
            return
        if self._due:
            self._commit(self._due, is_last=False)
            return
        now_s = time.monotonic()
        if now_s < self._next_commit_s and not self._reports.counter.is_full:
            return
        self._next_commit_s = now_s + COMMIT_S
        if (topic := self._share.ids.replaced()) is not None:
            raise PassageFailed(TOPIC_REPLACED, f"topic {topic!r} of the source is another one now")
        if self._share.watch.has_changed():
            self._is_outdated = True
        self._measure_lag()
        self._due = self._uncommitted()
        # Also where nothing is due: there may be some that were refused.
        self._reports.start()

    def _uncommitted(self) -> dict[Place, int]:
        return {
            place: position
            for place, lane in self._lanes.items()
            if (position := lane.progress.position) is not None
            and position != lane.progress.committed
        }

    def _commit(self, positions: Mapping[Place, int], *, is_last: bool) -> None:
        self._due = {}
        offsets = [
            TopicPartition(*place, position, self._share.ids.of(place[0]))
            for place, position in positions.items()
        ]
        for place, position in positions.items():
            self._lanes[place].progress.committed = position
        if is_last:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        else:
            self._consumer.commit(offsets=offsets)

    def _commit_last(self) -> None:
        """Commit, and wait for it; where that fails, what was copied since comes twice."""
        self._due = {}
        positions = self._uncommitted()
        if not positions:
            return
        if not self._reports.finish():
            # Whoever goes on tells of it then.
            _log.warning("not committed reason=audit reports are in flight")
            return
        try:
            self._commit(positions, is_last=True)
        except KafkaException as refusal:
            self._note_commit(refusal.args[0], [])

    def _note_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is None:
            return
        self._counts.error(error.name())
        _log.warning("not committed reason=%s", error.str())
        # So the next commit names all of them again.
        for lane in self._lanes.values():
            lane.progress.committed = None

    def _measure_lag(self) -> None:
        ends, now_s = self._ends(), time.monotonic()
        for place, lane in self._lanes.items():
            position, end = lane.progress.position, ends[place]
            if position is not None and end >= 0:
                self._counts.lags[place] = max(0, end - position)
                self._counts.uncopied_of(place).look(now_s, position, end)

    def _ends(self) -> dict[Place, int]:
        """Where the source's partitions end; below 0 where that is not known."""
        ends = {
            place: self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)[1]
            for place in self._lanes
        }
        if self._paused:
            # Nothing is read of these, which would tell it in passing.
            asked = [TopicPartition(*place, _LATEST) for place in self._paused]
            with suppress(KafkaException):
                for each in self._consumer.offsets_for_times(asked, timeout=ENDS_S):
                    # Of a broker that is away, the client may say so by an odd offset alone.
                    if each.error is None and each.offset >= 0:
                        ends[each.topic, each.partition] = each.offset
        return ends

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        known = self._share.partitions
        if any(place.partition >= known.get(place.topic, 0) for place in places):
            self._is_outdated = True
        starts = {} if self._is_outdated else self._starts(consumer, places)
        for (topic, partition), start in starts.items():
            self._lanes[topic, partition] = Lane(topic, partition, start, self._counts)
        begin_at = [
            TopicPartition(*place, OFFSET_BEGINNING if start is None else start)
            for place, start in starts.items()
        ]
        consumer.incremental_assign(begin_at)
        # One that was paused when it was given away may have come back.
        consumer.resume(begin_at)
        self._pause()
        if not self._is_outdated:
            if places:
                # A rebalance may also bring nothing new.
                _log.info("partitions gained partitions=%s", _named(places))
            for place in self._counts.uncopied.keys() - self._lanes.keys():
                # Another mirror's now, which tells of it.
                del self._counts.uncopied[place]
            self._share.has_begun()

    def _starts(self, consumer: Consumer, places: list[TopicPartition]) -> dict[Place, int | None]:
        """Where to begin: at the committed position, None where there is none; waits for it."""
        while not self._stopping.is_set():
            try:
                stored = consumer.committed(places, timeout=ANSWER_S) if places else []
                for place in stored:
                    if place.error is not None:
                        raise KafkaException(place.error)
            except KafkaException as refusal:
                self._complaints.note(refusal.args[0])
                self._stopping.wait(RETRY_S)
            else:
                return {(each.topic, each.partition): self._start(each) for each in stored}
        return {}

    def _start(self, stored: TopicPartition) -> int | None:
        """Where to begin a partition; None, at the earliest offset, also in another topic."""
        known = self._share.ids.of(stored.topic)
        if stored.offset >= 0 and known and stored.metadata and stored.metadata != known:
            self._counts.error(TOPIC_REPLACED)
            _log.error(
                "topic was made anew, begins at its earliest offset topic=%s partition=%s",
                *(stored.topic, stored.partition),
            )
            return None
        return stored.offset if stored.offset >= 0 else None

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if any((place.topic, place.partition) in self._lanes for place in places):
            is_level = self._sender.flush(DRAIN_S)
            self._commit_last()
            if not is_level and self._sender.failure is None:
                # What is under way must not arrive behind what the next owner sends.
                self._failure = PassageFailed(
                    "given_away", "partitions were given away before the destination had them"
                )
        self._forget(places)
        _log.info("partitions given partitions=%s", _named(places))
        consumer.incremental_unassign(places)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._forget(places)
        self._failure = PassageFailed("partitions_lost", f"the group took away {_named(places)}")
        consumer.incremental_unassign(places)

    def _forget(self, places: Sequence[TopicPartition]) -> None:
        for place in places:
            self._lanes.pop((place.topic, place.partition), None)
            self._paused.discard((place.topic, place.partition))
            self._counts.lags.pop((place.topic, place.partition), None)
        self._due = {place: at for place, at in self._due.items() if place in self._lanes}

    def _finish(self) -> None:
        self._waiting.clear()
        if not self._sender.flush(DRAIN_S):
            _log.warning("not acknowledged in time records=%s", self._sender.under_way)

    def _close(self) -> None:
        """Commit what was acknowledged, and leave the group."""
        self._sender.abandon()
        self._waiting.clear()
        self._commit_last()
        self._forget(_places(list(self._lanes)))
        self._consumer.close()


def _places(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]


def _named(places: Sequence[TopicPartition]) -> str:
    return text_of((place.topic, place.partition) for place in places)
