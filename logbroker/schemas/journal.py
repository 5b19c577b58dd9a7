"""The log `_schemas`: read from its beginning, written one decided change at a time.

One topic with one partition and unlimited retention. `log_records` describes the records. One
record is appended at a time, with a token in its header `append`. The change is done once the
record is read back: only then is it known whether it counts. So a lost acknowledgement loses
nothing, and a record written twice counts once.

One thread makes all calls of the consumer. It looks for the end of the log when a request needs it,
and every few seconds; each time it reads its last record again. If that record differs, or the log
ends before it, the log was truncated or replaced: the registry rejects all requests from then on,
because its ids may mean something else.
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
from logbroker.schemas.domain.log_records import Decided, encode
from logbroker.schemas.domain.state import Outcome, RegistryState
from logbroker.schemas.errors import (
    InvalidSchema,
    LogReplaced,
    SchemaRegistryError,
    StoreTimeout,
    StoreUnavailable,
)
from logbroker.schemas.journal_reader import APPEND_HEADER, CLUSTER_HEADER, JournalReader
from logbroker.schemas.journal_topic import RECORD_BYTES_MAX, ensure_topic

_log: Final = logging.getLogger(__name__)

SCHEMAS_TOPIC: Final = "_schemas"

POLL_S: Final = 0.02
"""The longest time until the thread sees a request."""

RETRY_S: Final = 1.0
"""Time between two requests to the brokers for the topic."""

CHECK_S: Final = 5.0
"""Time between two checks of the end of the log and the last record, without a request."""


@dataclass(eq=False, slots=True)
class _CatchUp:
    """A request that waits until the log is read to its end."""

    done: threading.Event = field(default_factory=threading.Event)
    problem: str | None = None


@dataclass(eq=False, slots=True)
class _Append:
    """A record being written: read back or failed."""

    done: threading.Event = field(default_factory=threading.Event)
    counts: bool = False
    error: KafkaError | None = None

    def delivered(self, error: KafkaError | None, _message: Message) -> None:
        """Record the producer's delivery report."""
        if error is not None:
            self.error = error


class SchemaJournal:
    """The log of a registry and its state; a context manager, thread-safe.

    Reading begins with `with`; `wait_until_ready` returns when the log was read to its end.
    Unreachable brokers are retried: meanwhile look-ups work on what was read, and changes are
    rejected. `timeout_s` limits an append, and a look for the end of the log.

    `properties` are the operator's librdkafka properties: TLS, SASL and the like. A
    `replication_factor` of -1 is the cluster's default.
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
        self._branch_warned = 0
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
        """The id of the log's cluster; empty until a broker has reported it."""
        return self._cluster

    def __enter__(self) -> Self:
        """Start the reading thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def wait_until_ready(self, timeout_s: float | None = None) -> bool:
        """Wait until the log was read to the end it had at the start; false after the time-out.

        Raises:
            ConfigurationError: the topic cannot hold a registry, or client settings are invalid.
            LogReplaced: the log has lost its beginning, or was replaced while it was read.
        """
        self._is_ready.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return self._is_ready.is_set() and not self._is_over.is_set()

    def wait_until_over(self, timeout_s: float | None = None) -> Exception | None:
        """Wait until reading ends, and return why; None if it was closed, or after the time-out.

        A registry whose log is over must be stopped: it rejects all requests.
        """
        self._is_over.wait(timeout_s)
        return self._failure

    @contextmanager
    def reading(self) -> Iterator[RegistryState]:
        """The state of the registry, unchanged until the block ends; for short look-ups.

        Raises:
            StoreUnavailable: the log was not read to its end yet.
            LogReplaced: the log differs from the one that was read.
        """
        self._expect_readable()
        with self._reading:
            yield self._state

    def append(self, decided: Decided) -> bool:
        """Write a change and wait until it is read back; returns whether it counts.

        Raises:
            StoreUnavailable: it was not written.
            StoreTimeout: it may be written or not.
            InvalidSchema: it exceeds the log's limit of a message.
        """
        key, value = encode(decided)
        if len(key) + len(value) > RECORD_BYTES_MAX - 1_024:
            raise InvalidSchema(
                f"schema too large: {len(value)} bytes in the log, max {RECORD_BYTES_MAX}"
            )
        came_s = time.monotonic()
        with self._appending:
            self._catch_up_in_turn(came_s)
            with self.reading() as state:
                if state.last != decided.after:
                    return False
            return self._write(key, value)

    def catch_up(self) -> None:
        """Wait until the log is read to the end it has now.

        Raises:
            StoreUnavailable: the log is unreachable.
            LogReplaced: the log differs from the one that was read.
        """
        asked = _CatchUp()
        with self._asking:
            self._expect_readable()
            self._asked.append(asked)
        is_done = asked.done.wait(2 * self._timeout_s)
        self._expect_readable()
        if not is_done or asked.problem is not None:
            raise StoreUnavailable(f"The log is unreachable: {asked.problem or 'timed out'}.")

    def _catch_up_in_turn(self, came_s: float) -> None:
        """Catch up, unless the same failed for another change after this one arrived."""
        # If the log hangs, one attempt fails after the time-out, and all waiting changes fail with
        # it.
        if self._turned_down_s >= came_s:
            raise StoreUnavailable("The log is unreachable: the change before this one timed out.")
        try:
            self.catch_up()
        except StoreUnavailable:
            self._turned_down_s = time.monotonic()
            raise

    def close(self) -> None:
        """Stop reading and disconnect; may be called again."""
        self._stop.set()
        self._thread.join()

    def _expect_readable(self) -> None:
        if isinstance(self._failure, LogReplaced):
            raise LogReplaced(str(self._failure))
        if self._failure is not None or self._is_over.is_set():
            raise StoreUnavailable(f"The log is no longer read: {self._failure or 'closed'}.")
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
            # A fatal error makes a producer unusable; the next change opens a new one.
            self._drop_producer()
            raise StoreUnavailable(f"The log cannot be written: {error.args[0].str()}.") from error
        finally:
            del self._appends[token]

    def _outcome(self, producer: Producer, append: _Append) -> bool:
        deadline_s = time.monotonic() + self._timeout_s
        while not append.done.wait(POLL_S / 4):
            producer.poll(0)
            if append.error is not None or time.monotonic() > deadline_s:
                self._drop_producer()
                # It may have been read back since.
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
        """Discard pending records: their callers got an error and may retry."""
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
            _log.exception("reading the log failed")
            self._failure = failure
        finally:
            with self._asking:
                self._is_over.set()
            self._is_ready.set()
            self._answer(self._in_hand + self._take_asked(), "reading has stopped")

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
        """Create or check the topic; whether a broker responded."""
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
        """Read to the present end of the log; returns the problem if that fails."""
        try:
            reader.seek_end()
            late_s = time.monotonic() + self._timeout_s
            while not reader.is_at_end:
                if self._stop.is_set():
                    return "it is closed"
                if self._take(reader):
                    late_s = time.monotonic() + self._timeout_s
                elif time.monotonic() > late_s:
                    raise StoreUnavailable("no records arrive")
        except StoreUnavailable as error:
            _log.warning("%s is not read to its end: %s", self._topic, error)
            return str(error)
        self._warn_of_branch()
        self._is_ready.set()
        return None

    def _warn_of_branch(self) -> None:
        """Warn that records of another log do not count here: schemas may be missing."""
        found = self._state.skipped[Outcome.BRANCH]
        if found > self._branch_warned:
            _log.warning(
                "%s has records of another history, which do not count here: records=%s",
                self._topic,
                found,
            )
        self._branch_warned = found

    def _wait(self, reader: JournalReader) -> None:
        """Wait until there is a record, a request for the end, or the next check is due."""
        again_s = time.monotonic() + CHECK_S
        while not self._asked and time.monotonic() < again_s and not self._stop.is_set():
            if reader.has_news(POLL_S):
                break

    def _take(self, reader: JournalReader) -> bool:
        """Apply the next record; whether there was one."""
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
    """Properties of all clients of the registry; its own take precedence over `properties`."""
    return {
        **properties,
        "bootstrap.servers": servers,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,  # the error callback reports the same
    }


def producer_settings(client: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Properties of the client that writes the log, with `timeout_s` to do so."""
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
        return InvalidSchema(f"The log rejects a schema of this size: {error.str()}")
    reason = "it was not read back in time" if error is None else error.str()
    return StoreTimeout(
        f"The log did not confirm the change: {reason}. It may have been made; retry."
    )
