"""Wakes idle workers as soon as a replay is requested: the topic `replay_requests`.

The value of a record is the id of a replay that a worker may claim, or of a resend. The header
`offsets` is PARTITION:START:END of the replay's window, if the API has looked it up. With the
header `claimed-by`, a worker reports that it has claimed the replay. Records are hints: workers
also poll the database, so that a lost record only delays the replay. One partition; no keys.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from app.config import Settings
from app.domain.model import OffsetRange
from app.domain.resends import RESEND_PREFIX
from app.log.client_errors import CLIENT_ERRORS, CLIENT_LOG
from app.log.event import header_text
from app.log.reader_clients import reader_configuration
from app.log.topics import REPLAY_REQUESTS
from logbroker.client.librdkafka import readable_headers

_log: Final = logging.getLogger(__name__)

_PENDING_MAX: Final = 1_000
_AGE_MS_MAX: Final = 5_000
"""An older request was found by polling."""

_OFFSETS_HEADER: Final = "offsets"
_CLAIMED_HEADER: Final = "claimed-by"
_OFFSETS: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18}):([0-9]{1,18})")

_CLOSE_S: Final = 1.0

_WAIT_S: Final = 1.0
"""The longest time that a read blocks, and so the delay of a stop."""

_IDLE_FETCH_MS: Final = 10_000
"""How long a broker holds a fetch of a topic without new records."""


class RequestHint(NamedTuple):
    """A replay or a resend that may be claimed, or was claimed by a worker.

    `offsets` are those of the replay's window, if they are known.
    """

    id: str
    offsets: OffsetRange | None = None
    claimed_by: str | None = None

    @property
    def is_resend(self) -> bool:
        """Whether it is a resend."""
        return self.id.startswith(RESEND_PREFIX)


class ReplayRequestPublisher:
    """Publishes hints without waiting for the log. Thread-safe; it connects at the first one.

    `properties` are the operator's for the client, such as those of TLS and SASL.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str]) -> None:
        self._configuration: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "rewind-replay-requests",
            "linger.ms": 0,
            "acks": 1,
            "message.timeout.ms": _AGE_MS_MAX,
            "queue.buffering.max.messages": _PENDING_MAX,
            "error_cb": CLIENT_ERRORS.report_error,
            **properties,
        }
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def publish(self, replay_id: str, offsets: OffsetRange | None = None) -> None:
        """Wake the idle workers for a replay, whose window has these offsets if they are known."""
        place = None if offsets is None else f"{offsets.partition}:{offsets.start}:{offsets.end}"
        self._publish(replay_id, _OFFSETS_HEADER, place)

    def publish_claim(self, replay_id: str, worker: str) -> None:
        """Report to the other workers that `worker` has claimed a replay."""
        self._publish(replay_id, _CLAIMED_HEADER, worker)

    def _publish(self, value: str, header: str, text: str | None) -> None:
        headers: list[tuple[str, str | bytes | None]] = [] if text is None else [(header, text)]
        producer = self._connected()
        producer.poll(0)  # runs the error callback
        try:
            producer.produce(REPLAY_REQUESTS, value.encode(), headers=headers)
        except (BufferError, KafkaException) as error:
            _log.debug("replay-request-dropped", extra={"reason": str(error)})

    def close(self) -> None:
        """Wait up to a second for hints in flight."""
        if self._producer is not None:
            self._producer.flush(_CLOSE_S)

    def _connected(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._configuration, logger=CLIENT_LOG)
            return self._producer


class ReplayRequestListener:
    """Calls `on_request` on its own thread for each new hint; a context manager."""

    def __init__(self, settings: Settings, on_request: Callable[[RequestHint], object]) -> None:
        configuration = {
            **reader_configuration(settings.bootstrap_servers, settings.kafka_properties),
            "client.id": "rewind-replay-requests",
            "auto.offset.reset": "latest",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": _IDLE_FETCH_MS,
        }
        self._consumer = Consumer(configuration, logger=CLIENT_LOG)
        self._on_request = on_request
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="replay-requests", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, without waiting for the log."""
        self._is_closed.set()
        self._thread.join()

    def _listen(self) -> None:
        # Without a connection the client would look up the leader later, by up to a second.
        with suppress(KafkaException):
            self._consumer.list_topics(REPLAY_REQUESTS, timeout=_WAIT_S)
        self._consumer.assign([TopicPartition(REPLAY_REQUESTS, 0, OFFSET_END)])
        while not self._is_closed.is_set():
            message = self._consumer.poll(_WAIT_S)
            # Errors need no handling: the client retries, and workers also poll the database.
            if message is not None and message.error() is None:
                self._on_request(_request_of(message))
        self._consumer.close()


def _request_of(message: Message) -> RequestHint:
    value = message.value() or b""
    headers = dict(readable_headers(message) or ())
    match = _OFFSETS.fullmatch(header_text(headers.get(_OFFSETS_HEADER)))
    offsets = None if match is None else OffsetRange(*map(int, match.groups()))
    claimed_by = header_text(headers.get(_CLAIMED_HEADER)) or None
    return RequestHint(value.decode("utf-8", "replace"), offsets, claimed_by)
