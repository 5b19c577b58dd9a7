"""librdkafka through its C functions, in calls of ten thousand messages, without Python objects.

For a small message, `Producer.produce` of confluent-kafka costs more than the library, so it would
measure Python. The library in the wheel is called directly with arrays of messages, as its own
performance tool does in C.

Source: librdkafka, `rdkafka.h`.
"""

import ctypes
import time
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Final, Self

import confluent_kafka

ANY_PARTITION: Final = -1
BEGINNING: Final = -2
COPY_PAYLOAD: Final = 2
ARRAY_MESSAGES: Final = 10_000
FLUSH_MS: Final = 30_000
POLL_MS: Final = 1
TIMEOUT_MS: Final = 10_000

_PRODUCER: Final = 0
_CONSUMER: Final = 1
_CONF_OK: Final = 0
_ERROR_BYTES: Final = 512


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_void_p),
    )


class LibrdkafkaError(Exception):
    """An error of librdkafka, with its message."""


def _load() -> ctypes.CDLL:
    """Load the library in the wheel of confluent-kafka."""
    site = Path(confluent_kafka.__file__).parent
    folders = (site.with_name("confluent_kafka.libs"), site / ".dylibs")
    found = [path for folder in folders for path in folder.glob("librdkafka[-.]*")]
    library = ctypes.CDLL(str(found[0]) if found else "librdkafka.so.1")
    for name, result_type, *arguments in _FUNCTIONS:
        function = getattr(library, name)
        function.restype, function.argtypes = result_type, arguments
    return library


_FUNCTIONS: Final = (
    ("rd_kafka_conf_new", c_void_p),
    ("rd_kafka_conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t),
    ("rd_kafka_new", c_void_p, c_int, c_void_p, c_char_p, c_size_t),
    ("rd_kafka_topic_new", c_void_p, c_void_p, c_char_p, c_void_p),
    (
        "rd_kafka_produce_batch",
        *(c_int, c_void_p, c_int32, c_int, POINTER(Message), c_int),
    ),
    ("rd_kafka_poll", c_int, c_void_p, c_int),
    ("rd_kafka_flush", c_int, c_void_p, c_int),
    ("rd_kafka_outq_len", c_int, c_void_p),
    ("rd_kafka_consume_start", c_int, c_void_p, c_int32, c_int64),
    (
        "rd_kafka_consume_callback",
        *(c_int, c_void_p, c_int32, c_int, c_void_p, c_void_p),
    ),
    ("rd_kafka_consume_stop", c_int, c_void_p, c_int32),
    ("rd_kafka_topic_destroy", None, c_void_p),
    ("rd_kafka_destroy", None, c_void_p),
)

_library: Final = _load()


class _Client:
    """A client for one topic; a context manager."""

    def __init__(self, kind: int, topic: str, settings: Mapping[str, str]) -> None:
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = _library.rd_kafka_conf_new()
        for name, value in {"log_level": "0", **settings}.items():
            result = _library.rd_kafka_conf_set(
                conf, name.encode(), value.encode(), error, _ERROR_BYTES
            )
            if result != _CONF_OK:
                raise LibrdkafkaError(error.value.decode())
        self.handle = _library.rd_kafka_new(kind, conf, error, _ERROR_BYTES)
        if not self.handle:
            raise LibrdkafkaError(error.value.decode())
        self.topic = _library.rd_kafka_topic_new(self.handle, topic.encode(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _library.rd_kafka_topic_destroy(self.topic)
        _library.rd_kafka_destroy(self.handle)


def produce_for(
    topic: str, settings: Mapping[str, str], payload: bytes, seconds: float
) -> tuple[int, float]:
    """Produce `payload` for `seconds`, then flush; return messages, and seconds with the flush.

    One more message is sent first, so that connections are open when the clock starts.

    Raises:
        LibrdkafkaError: a setting is invalid, or messages remain after the flush.
    """
    held = ctypes.create_string_buffer(payload, len(payload))
    messages = (Message * ARRAY_MESSAGES)(
        *(Message(payload=ctypes.addressof(held), len=len(payload)) for _ in range(ARRAY_MESSAGES))
    )
    with _Client(_PRODUCER, topic, settings) as client:
        _enqueue(client, messages, 1)
        _flush(client)
        start = time.perf_counter()
        count = 0
        while time.perf_counter() - start < seconds:
            count += _enqueue(client, messages, ARRAY_MESSAGES)
        _flush(client)
        return count, time.perf_counter() - start


def consume(topic: str, settings: Mapping[str, str], messages: int) -> tuple[int, float]:
    """Read messages from the start of partition 0; return messages and seconds.

    Both exclude the first messages, which wait for connections.

    Raises:
        LibrdkafkaError: no further message arrives.
    """
    with _Client(_CONSUMER, topic, settings) as client:
        _library.rd_kafka_consume_start(client.topic, 0, BEGINNING)
        timed = left = messages - _consume_some(client)
        start = time.perf_counter()
        while left > 0:
            left -= _consume_some(client)
        elapsed_s = time.perf_counter() - start
        _library.rd_kafka_consume_stop(client.topic, 0)
        return timed, elapsed_s


def _enqueue(client: _Client, messages: "ctypes.Array[Message]", count: int) -> int:
    """Enqueue as many messages as the queue accepts; wait briefly when it is full."""
    taken: int = _library.rd_kafka_produce_batch(
        client.topic, ANY_PARTITION, COPY_PAYLOAD, messages, count
    )
    _library.rd_kafka_poll(client.handle, 0 if taken == count else POLL_MS)
    return taken


def _flush(client: _Client) -> None:
    _library.rd_kafka_flush(client.handle, FLUSH_MS)
    left = _library.rd_kafka_outq_len(client.handle)
    if left:
        raise LibrdkafkaError(f"{left} messages are not acknowledged after {FLUSH_MS} ms")


def _consume_some(client: _Client) -> int:
    """Read the available messages, or wait for the first; a C function is the callback."""
    callback = ctypes.cast(_library.rd_kafka_message_status, c_void_p)
    count: int = _library.rd_kafka_consume_callback(client.topic, 0, TIMEOUT_MS, callback, None)
    if count <= 0:
        raise LibrdkafkaError(f"no message arrived in {TIMEOUT_MS} ms")
    return count
