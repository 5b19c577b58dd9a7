"""Sends mutated requests to a broker while a stock client produces and consumes.

The requests are valid ones of every API and version, then changed at random: flipped bits, extreme
numbers, cuts, copies and wrong sizes. The same seed makes the same requests. Measured are the worst
latency of the stock client, from produce to consume, next to the one of a quiet broker, and how
much the resident memory of the broker grows.
"""

import multiprocessing
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.frames import ACKS_LEADER, FetchFrames, batch_of, encode_produce
from benchmarks.produce_load import Address
from benchmarks.running_broker import RunningBroker, running_broker
from benchmarks.scale import Scale
from benchmarks.table import Baseline, Line, at_most
from logbroker.wire.apis import SERVED
from logbroker.wire.messages import REQUESTS

TOPIC: Final = "mutated"
"""The topic of the valid requests. The stock client has another one."""

TIMESTAMP_MS: Final = 1_760_000_000_000
STOCK_TOPIC: Final = "stock"
OPTIONS: Final = (
    *("--partitions-max", "200", "--auto-create-topics"),
    *("--group-initial-rebalance-delay-ms", "0"),
)
GROWTH_MB_MAX: Final = 268.0
"""The default of `--request-memory-bytes-max`."""

QUIET_S: Final = 5.0
RESPONSE_S: Final = 0.05
"""How long a response is awaited."""

RECEIVE_BYTES: Final = 2**16
CLOSE_S: Final = 60.0
"""The time limit for connecting, and for the stock client's last message."""

_SIZE: Final = struct.Struct(">i")
EXTREMES: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\0",
    b"\0\x98\x96\x80",
)
CHANGES_MAX: Final = 4
_MESSAGE: Final = struct.Struct(">qd")
_CORRELATION_ID: Final = 7


class Outcome(Enum):
    """How a broker reacted to a request."""

    ANSWERED = auto()
    CLOSED = auto()
    UNANSWERED = auto()
    """Not within `RESPONSE_S`: the request waits for records, for members or for more bytes."""


class Tally(NamedTuple):
    """The numbers of requests by outcome."""

    answered: int
    closed: int
    unanswered: int


def valid_frames() -> list[bytes]:
    """Return a request of each API in each version, without its size."""
    produce = [
        encode_produce(TOPIC, batch_of(count, TIMESTAMP_MS), count, ACKS_LEADER).frame
        for count in (1, 5)
    ]
    frames = [
        frame[_SIZE.size :]
        for frame in (*produce, FetchFrames(TOPIC, 0, RECEIVE_BYTES).encode_request(0))
    ]
    for api_key, request in REQUESTS.items():
        first, last = SERVED[api_key]
        for version in range(first, last + 1):
            message = _filled(request)
            message.API_VERSION = version
            message.with_header(_CORRELATION_ID, TOPIC)
            frames.append(bytes(message.encode(version=version, header=True, framed=False)))
    return frames


def _filled(message: Any) -> Any:
    """Return a message of kafka-python, or a part of one, with a value in every field."""
    fields = message._struct._fields  # noqa: SLF001
    return message(**{each.name: _value(message, each._json["type"]) for each in fields})  # noqa: SLF001


def _value(message: Any, kind: str) -> Any:
    if kind.startswith("[]"):
        return [_value(message, kind.removeprefix("[]"))]
    return SAMPLES[kind] if kind in SAMPLES else _filled(getattr(message, kind))


SAMPLES: Final = {
    "bool": False,
    "int8": 1,
    "int16": 1,
    "uint16": 1,
    "int32": 1,
    "uint32": 1,
    "int64": 1,
    "float64": 1.0,
    "string": TOPIC,
    "bytes": b"mutated bytes",
    "uuid": UUID(int=1),
}


def mutated_frames(seed: int, count: int) -> Iterator[bytes]:
    """Yield mutated requests with their sizes, the same ones for the same seed."""
    chance = random.Random(seed)
    frames = valid_frames()
    for _ in range(count):
        body = bytearray(chance.choice(frames))
        for _ in range(chance.randint(1, CHANGES_MAX)):
            _mutate(body, chance)
        size = len(body)
        if chance.random() < 0.02:
            size = chance.choice((size - 1, size + 1, -1, 0, 2**31 - 1, chance.getrandbits(24)))
        yield _SIZE.pack(size) + body


def _mutate(body: bytearray, chance: random.Random) -> None:
    if not body:
        return
    # Most changes spare the API key and the version, so that the request reaches its handler.
    first = 0 if chance.random() < 0.1 or len(body) < 9 else 8
    place = chance.randrange(first, len(body))
    kind = chance.randrange(6)
    if kind <= 1:
        body[place] ^= 1 << chance.randrange(8)
    elif kind == 2:
        body[place] = chance.getrandbits(8)
    elif kind == 3:
        body[place : place + 4] = chance.choice(EXTREMES)
    elif kind == 4:
        del body[place : place + chance.randint(1, 16)]
    else:
        end = min(place + chance.randint(1, 64), len(body))
        body[place:place] = body[place:end] * chance.randint(1, 8)


def send_mutated(address: Address, seed: int, count: int) -> Tally:
    """Send mutated requests one after the other, on as many connections as that takes."""
    frames = mutated_frames(seed, count)
    outcomes: Counter[Outcome] = Counter()
    while sum(outcomes.values()) < count:
        with socket.create_connection(address, CLOSE_S) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(RESPONSE_S)
            for frame in frames:
                outcome = _exchange(sock, frame)
                outcomes[outcome] += 1
                if outcome is not Outcome.ANSWERED:
                    break
    return Tally(*(outcomes[each] for each in Outcome))


def _exchange(sock: socket.socket, frame: bytes) -> Outcome:
    """Send a request and wait for its response."""
    received = bytearray()
    try:
        sock.sendall(frame)
        while len(received) < _SIZE.size or (
            len(received) < _SIZE.size + _SIZE.unpack_from(received)[0]
        ):
            data = sock.recv(RECEIVE_BYTES)
            if not data:
                return Outcome.CLOSED
            received += data
    except TimeoutError:
        return Outcome.UNANSWERED
    except OSError:
        return Outcome.CLOSED
    return Outcome.ANSWERED


class StockTraffic:
    """A stock producer and consumer of one topic, on a thread. A context manager.

    At its end all messages that were acknowledged have been consumed, or `lost` counts them.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        client: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._producer = Producer({**client, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer({**client, "group.id": "stock", "fetch.wait.max.ms": 10})
        partition = TopicPartition(STOCK_TOPIC, 0)
        # Messages of an earlier run would count as late.
        partition.offset = self._consumer.get_watermark_offsets(partition, CLOSE_S)[1]
        self._consumer.assign([partition])
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stock client")
        self._acknowledged: set[int] = set()
        self._consumed: set[int] = set()
        self.sent = 0
        self.worst_s = 0.0
        """The longest time from produce to consume."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stops.set()
        self._thread.join()
        self._consumer.close()

    @property
    def lost(self) -> int:
        """The messages that were not acknowledged, or not consumed."""
        return self.sent - len(self._acknowledged & self._consumed)

    def _run(self) -> None:
        while not self._stops.is_set():
            number = self.sent
            self.sent += 1
            self._producer.produce(
                STOCK_TOPIC,
                _MESSAGE.pack(number, time.monotonic()),
                on_delivery=partial(self._record_delivery, number),
            )
            self._producer.poll(0)
            self._consume(0.005)
        self._producer.flush(CLOSE_S)
        end_s = time.monotonic() + CLOSE_S
        while self._acknowledged - self._consumed and time.monotonic() < end_s:
            self._consume(0.05)

    def _record_delivery(self, number: int, error: Any, _: object) -> None:
        if error is None:
            self._acknowledged.add(number)

    def _consume(self, wait_s: float) -> None:
        message = self._consumer.poll(wait_s)
        while message is not None:
            if message.error() is None:
                value = message.value()
                assert value is not None
                number, sent_s = _MESSAGE.unpack(value)
                self._consumed.add(number)
                self.worst_s = max(self.worst_s, time.monotonic() - sent_s)
            message = self._consumer.poll(0)


class Measured(NamedTuple):
    """What a run of mutated requests did to the broker and to the stock client."""

    tally: Tally
    elapsed_s: float
    growth_mb: float
    worst_s: float
    sent: int
    lost: int


def attack(broker: RunningBroker, *, count: int, seed: int) -> Measured:
    """Send `count` mutated requests from another process, next to a stock client."""
    before_mb = peak_mb = broker.resident_mb()
    begin = time.perf_counter()
    with (
        StockTraffic(broker.bootstrap_servers) as traffic,
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        sending = pool.apply_async(send_mutated, (broker.address, seed, count))
        while not sending.ready():
            sending.wait(0.5)
            peak_mb = max(peak_mb, broker.resident_mb())
        tally = sending.get()
        elapsed_s = time.perf_counter() - begin
    return Measured(
        tally, elapsed_s, peak_mb - before_mb, traffic.worst_s, traffic.sent, traffic.lost
    )


def quiet_worst_s(broker: RunningBroker, seconds: float) -> float:
    """Return the stock client's worst latency at a broker without other requests."""
    with StockTraffic(broker.bootstrap_servers) as traffic:
        time.sleep(seconds)
    return traffic.worst_s


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure once: the number of requests makes it a long run."""
    with running_broker(folder / "mutated", options=OPTIONS, keeps_data=False) as broker:
        broker.create_topic(STOCK_TOPIC)
        quiet_s = quiet_worst_s(broker, QUIET_S * scale.case_s)
        done = attack(broker, count=scale.mutated_requests, seed=1)
        assert broker.process.is_running()
    quiet = Baseline("the same, without others", quiet_s * 1e3)
    count = sum(done.tally)
    return [
        Line(
            f"{sum(done.tally):,} mutated requests", sum(done.tally) / done.elapsed_s, "requests/s"
        ),
        Line("  answered", done.tally.answered / count * 100, "%"),
        Line("worst latency of a stock client", done.worst_s * 1e3, "ms", quiet),
        Line("  its lost messages", done.lost, f"of {done.sent:,}", target=at_most(0)),
        Line("growth of the resident memory", done.growth_mb, "MB", target=at_most(GROWTH_MB_MAX)),
    ]
