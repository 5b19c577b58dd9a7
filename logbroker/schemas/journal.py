"""The log `_schemas`: read from its beginning on, and written one decided change at a time.

One topic with one partition, which forgets nothing. What its records are, `log_records` says; one
record is appended at a time, with a token in its header `append`, and has happened once it was
read back: then it is known whether it counts. So an acknowledgement that is lost loses nothing,
and a record that was written twice counts once.

All calls of the consumer are made on one thread. It looks for the end of the log whenever somebody
has to know, and every few seconds; each time it reads the last record that it knew again. If that
is not the same any more, or the log ends before it, the log was cut or replaced: the registry
answers nothing from then on, for its ids may mean something else by now.
"""

import logging
import math
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from logbroker.client.librdkafka import ErrorReporter
from logbroker.errors import ConfigurationError
from logbroker.schemas.errors import (
    InvalidSchema,
    LogReplaced,
    SchemaRegistryError,
    StoreTimeout,
    StoreUnavailable,
)
from logbroker.schemas.journal_reader import APPEND_HEADER, CLUSTER_HEADER, JournalReader
from logbroker.schemas.journal_topic import RECORD_BYTES_MAX, ensure_topic
from logbroker.schemas.log_records import Decided, encode
from logbroker.schemas.state import Outcome, RegistryState

_log: Final = logging.getLogger(__name__)

SCHEMAS_TOPIC: Final = "_schemas"

POLL_S: Final = 0.02
"""How long a request may wait until the thread sees it."""

RETRY_S: Final = 1.0
"""How long to wait until brokers are asked for the topic again."""

CHECK_S: Final = 5.0
"""How often the end of the log is looked at, and the last record read again, by itself."""


@dataclass(eq=False, slots=True)
class _CatchUp:
    """Somebody who waits until all that is in the log was read."""

    done: threading.Event = field(default_factory=threading.Event)
    problem: str | None = None


@dataclass(eq=False, slots=True)
class _Append:
    """A record on its way: read back or failed."""

    done: threading.Event = field(default_factory=threading.Event)
    counts: bool = False
    error: KafkaError | None = None

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        """What the producer reports."""
        if error is not None:
            self.error = error


class SchemaJournal:
    """The log of a registry, and what it says; a context manager, safe on any threads.

    Reading begins with `with`; `wait_until_ready` tells when all is read that was there. Brokers
    that are away are waited for: until they are back, what was read can be looked up, and nothing
    be changed. `timeout_s` is how long an append, or one look at the log, may take.

    `properties` are the operator's for librdkafka: TLS, SASL and the like. A `replication_factor`
    of -1 is the log's own default.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        properties: Mapping[str, Any] = {},
        topic: str = SCHEMAS_TOPIC,
        replication_factor: int = -1,
        timeout_s: float = 10.0,
    ) -> None:
        self._client = client_settings(bootstrap_servers, properties) | {
            "error_cb": ErrorReporter(partial(_log.warning, "log client: %s")).report_error
        }
        self._topic = topic
        self._replication_factor = replication_factor
        self._timeout_s = timeout_s
        self._state = RegistryState()
        self._reading = threading.Lock()
        self._appending = threading.Lock()
        self._turned_down_s = -math.inf
        self._cluster = ""
        self._branch_told = 0
        self._producer: Producer | None = None
        self._appends: dict[bytes, _Append] = {}
        self._asking = threading.Lock()
        self._asked: list[_CatchUp] = []
        self._in_hand: list[_CatchUp] = []
        self._is_ready = threading.Event()
        self._failure: Exception | None = None
        self._is_over = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schema-journal", daemon=True)

    @property
    def cluster(self) -> str:
        """The id of the cluster that the log is at; empty as long as no broker has told it."""
        return self._cluster

    def __enter__(self) -> Self:
        """Begin to read."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def wait_until_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until everything was read that the log had at the start; whether it was.

        Raises:
            ConfigurationError: the topic is none for a registry, or the client's settings are
                none.
            LogReplaced: the log has lost its beginning, or was replaced while it was read.
        """
        self._is_ready.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return self._is_ready.is_set() and not self._is_over.is_set()

    def wait_until_over(self, timeout_s: float | None = None) -> Exception | None:
        """Wait until nothing is read any more; why, if it was not closed. None also after a time.

        A registry whose log is over has to be ended: it refuses everything.
        """
        self._is_over.wait(timeout_s)
        return self._failure

    @contextmanager
    def reading(self) -> Iterator[RegistryState]:
        """What the log says, unchanged until the block ends; for look-ups, which are short.

        Raises:
            StoreUnavailable: the log was not read to its end yet.
            LogReplaced: it is not the log that was read before.
        """
        self._expect_readable()
        with self._reading:
            yield self._state

    def append(self, decided: Decided) -> bool:
        """Write a change, and wait until it was read back; whether it counts.

        Raises:
            StoreUnavailable: it was not written.
            StoreTimeout: it was written or not.
            InvalidSchema: it is larger than the log takes.
        """
        key, value = encode(decided)
        if len(key) + len(value) > RECORD_BYTES_MAX - 1_024:
            raise InvalidSchema(f"The schema takes {len(value)} bytes in the log, which are many.")
        came_s = time.monotonic()
        with self._appending:
            self._catch_up_in_turn(came_s)
            with self.reading() as state:
                if state.last != decided.after:
                    return False
            return self._write(key, value)

    def catch_up(self) -> None:
        """Wait until everything was read that the log had when this was called.

        Raises:
            StoreUnavailable: the log does not answer.
            LogReplaced: it is not the log that was read before.
        """
        asked = _CatchUp()
        with self._asking:
            self._expect_readable()
            self._asked.append(asked)
        is_done = asked.done.wait(2 * self._timeout_s)
        self._expect_readable()
        if not is_done or asked.problem is not None:
            raise StoreUnavailable(f"The log does not answer: {asked.problem or 'too late'}.")

    def _catch_up_in_turn(self, came_s: float) -> None:
        """Catch up, unless that failed for another change after this one had come."""
        # While the log hangs it fails after a while: all who wait for their turn are told at once.
        if self._turned_down_s >= came_s:
            raise StoreUnavailable("The log does not answer: it did not for the change before.")
        try:
            self.catch_up()
        except StoreUnavailable:
            self._turned_down_s = time.monotonic()
            raise

    def close(self) -> None:
        """Stop reading, and leave the brokers; closing again changes nothing."""
        self._stop.set()
        self._thread.join()

    def _expect_readable(self) -> None:
        if isinstance(self._failure, LogReplaced):
            raise LogReplaced(str(self._failure))
        if self._failure is not None or self._is_over.is_set():
            raise StoreUnavailable(f"The log is not read any more: {self._failure or 'closed'}.")
        if not self._is_ready.is_set():
            raise StoreUnavailable("The log is not read to its end yet.")

    def _write(self, key: bytes, value: bytes) -> bool:
        token = uuid.uuid4().bytes
        append = self._appends[token] = _Append()
        headers: list[tuple[str, str | bytes | None]] = [
            (APPEND_HEADER, token),
            (CLUSTER_HEADER, self._cluster),
        ]
        try:
            producer = self._open_producer()
            producer.produce(self._topic, value, key, 0, append.delivered, headers=headers)
            return self._outcome(producer, append)
        except KafkaException as error:
            # What befell it before makes a producer useless for good; the next one is new.
            self._drop_producer()
            raise StoreUnavailable(f"The log takes nothing: {error.args[0].str()}.") from error
        finally:
            del self._appends[token]

    def _outcome(self, producer: Producer, append: _Append) -> bool:
        deadline_s = time.monotonic() + self._timeout_s
        while not append.done.wait(POLL_S / 4):
            producer.poll(0)
            if append.error is not None or time.monotonic() > deadline_s:
                self._drop_producer()
                # It may have been read back just now.
                if append.done.is_set():
                    break
                raise _not_written(append.error)
            self._expect_readable()
        return append.counts

    def _open_producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(producer_settings(self._client, self._timeout_s), logger=_log)
        return self._producer

    def _drop_producer(self) -> None:
        """What is still to be sent is not to be: whoever asked was told that it may ask again."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _run(self) -> None:
        try:
            self._read_until_stopped()
        except (ConfigurationError, LogReplaced) as failure:
            _log.error("%s", failure)
            self._failure = failure
        except Exception as failure:
            _log.exception("the log is not read any more")
            self._failure = failure
        finally:
            with self._asking:
                self._is_over.set()
            self._is_ready.set()
            self._answer(self._in_hand + self._take_asked(), "it is not read any more")

    def _read_until_stopped(self) -> None:
        if not self._find_topic():
            return
        reader = JournalReader(self._client, self._topic, self._timeout_s)
        try:
            while not self._stop.is_set():
                self._in_hand = self._take_asked()
                problem = self._read_to_end(reader)
                self._answer(self._in_hand, problem)
                self._wait(reader)
        finally:
            reader.close()

    def _find_topic(self) -> bool:
        """Make the topic or check it, as soon as a broker answers; whether that came to pass."""
        while not self._stop.is_set():
            try:
                self._cluster = ensure_topic(
                    self._client, self._topic, self._replication_factor, self._timeout_s
                )
            except StoreUnavailable as error:
                _log.warning("waiting for the log: %s", error)
                self._stop.wait(RETRY_S)
            else:
                return True
        return False

    def _take_asked(self) -> list[_CatchUp]:
        with self._asking:
            asked, self._asked = self._asked, []
        return asked

    def _read_to_end(self, reader: JournalReader) -> str | None:
        """Read what the log has by now; what is in the way, if it cannot be read."""
        try:
            reader.look_for_end()
            late_s = time.monotonic() + self._timeout_s
            while not reader.is_at_end:
                if self._stop.is_set():
                    return "it is closed"
                if self._take(reader):
                    late_s = time.monotonic() + self._timeout_s
                elif time.monotonic() > late_s:
                    raise StoreUnavailable("no records come")
        except StoreUnavailable as error:
            _log.warning("%s is not read to its end: %s", self._topic, error)
            return str(error)
        self._tell_branch()
        self._is_ready.set()
        return None

    def _tell_branch(self) -> None:
        """Warn of what was decided elsewhere and is not so here: schemas may be missing."""
        found = self._state.passed_over[Outcome.BRANCH]
        if found > self._branch_told:
            _log.warning(
                "%s has records of another history, which do not count here: records=%s",
                self._topic,
                found,
            )
        self._branch_told = found

    def _wait(self, reader: JournalReader) -> None:
        """Wait until there is more to read, somebody asks for the end, or it is time to look."""
        again_s = time.monotonic() + CHECK_S
        while not self._asked and time.monotonic() < again_s and not self._stop.is_set():
            if reader.has_news(POLL_S):
                break

    def _take(self, reader: JournalReader) -> bool:
        """Take the next record into account; whether there was one."""
        record = reader.read(POLL_S)
        if record is None:
            return False
        with self._reading:
            outcome = self._state.apply(record.key, record.value, record.cluster)
        append = self._appends.get(record.token)
        if append is not None and not append.done.is_set():
            append.counts = outcome is Outcome.COUNTS
            append.done.set()
        return True

    def _answer(self, asked: list[_CatchUp], problem: str | None) -> None:
        for each in asked:
            each.problem = problem
            each.done.set()


def client_settings(servers: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """For every client of the registry; what it rests on goes before `properties`."""
    return {
        **properties,
        "bootstrap.servers": servers,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,  # the callback for errors hears of the same
    }


def producer_settings(client: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """For the client that writes the log, which has `timeout_s` for it."""
    return {
        **client,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        "message.max.bytes": RECORD_BYTES_MAX,
        "delivery.timeout.ms": round(timeout_s * 1_000),
    }


def _not_written(error: KafkaError | None) -> SchemaRegistryError:
    if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return InvalidSchema(f"The log does not take a schema of this size: {error.str()}")
    reason = "it was not read back in time" if error is None else error.str()
    return StoreTimeout(
        f"The log did not confirm the change: {reason}. It may be made all the same; ask again."
    )
