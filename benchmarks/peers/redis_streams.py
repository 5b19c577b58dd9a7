"""Redis Streams: XADD without waiting, and XREAD of a thousand messages at a time.

Source: Redis serialization protocol specification (RESP2); commands XADD and XREAD.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from benchmarks.frames import MESSAGE, MESSAGE_BYTES
from benchmarks.peers.exchange import Consumer, ErrorAnswer, MessageCounter, Producer, Received
from benchmarks.peers.peer import (
    Peer,
    RunningPeer,
    connect,
    find_program,
    first_line,
    server_process,
)
from benchmarks.zookeeper_server import free_port

FETCH_MESSAGES: Final = 1_000
"""200 KB, as in the paper."""

ANSWER_BYTES_MAX: Final = 1_024

_FIELD: Final = b"m"
_ENTRY: Final = b"\r\n*2\r\n$1\r\nm\r\n$%d\r\n" % MESSAGE_BYTES
"""What is between the id of an entry and its message."""


def command(*arguments: bytes) -> bytes:
    """Return an encoded command."""
    parts = b"".join(b"$%d\r\n%s\r\n" % (len(each), each) for each in arguments)
    return b"*%d\r\n%s" % (len(arguments), parts)


class EntryIds:
    """Counts the answers of XADD, each of which is an id in two lines."""

    def __init__(self) -> None:
        self._lines = 0

    def receive(self, data: bytes) -> Received:
        """Count the messages that complete answers acknowledge.

        Raises:
            ErrorAnswer: Redis rejected a message.
        """
        at = data.find(b"\n-")
        if at >= 0:
            raise ErrorAnswer(data[at + 1 :].partition(b"\r\n")[0].decode())
        before = self._lines // 2
        self._lines += data.count(b"\n")
        return Received(self._lines // 2 - before)


class Entries:
    """Counts the messages of XREAD, and requests the next ones after the last id."""

    def __init__(self, name: str, messages: int) -> None:
        self._name = name.encode()
        self._left = messages
        self._expected = min(FETCH_MESSAGES, messages)
        self._counter = MessageCounter()
        self._tail = b""

    def request(self, after_id: bytes) -> bytes:
        """Return the request for the messages after an id."""
        count = b"%d" % FETCH_MESSAGES
        return command(b"XREAD", b"COUNT", count, b"STREAMS", self._name, after_id)

    def receive(self, data: bytes) -> Received:
        """Count the messages of an answer; it is complete with its last message and line end.

        Raises:
            ErrorAnswer: Redis rejected the request.
        """
        if not self._tail and data.startswith(b"-"):
            raise ErrorAnswer(data.decode(errors="replace"))
        messages = self._counter.count(data)
        self._left -= messages
        self._expected -= messages
        self._tail = (self._tail + data)[-ANSWER_BYTES_MAX:]
        if self._expected or not self._tail.endswith(b"\r\n") or not self._left:
            return Received(messages)
        self._expected = min(FETCH_MESSAGES, self._left)
        before, _, _ = self._tail.rpartition(_ENTRY)
        last_id = before.rpartition(b"\r\n")[2]
        self._tail = b""
        return Received(messages, self.request(last_id))


class _Redis(RunningPeer):
    def __init__(self, process: psutil.Process, data_dir: Path, port: int, version: str) -> None:
        super().__init__(process, data_dir)
        self._port = port
        self.version = version

    def create_log(self, name: str) -> None:
        """Nothing: the first message creates a stream."""

    def producer(self, name: str, batch: int) -> Producer:
        assert batch == 1, "Redis has no request with several messages"
        request = command(b"XADD", name.encode(), b"*", _FIELD, MESSAGE)
        return Producer(connect(self._port), request, batch, EntryIds())

    def consumer(self, name: str, batch: int, messages: int) -> Consumer:  # noqa: ARG002
        answers = Entries(name, messages)
        return Consumer(connect(self._port), answers.request(b"0"), answers)


@contextmanager
def _redis(folder: Path, appendfsync: str) -> Iterator[RunningPeer]:
    program = find_program("redis-server", "redis-server")
    port = free_port()
    data_dir = folder / "data"
    data_dir.mkdir()
    arguments = [
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(data_dir), "--save", ""),
        # Rewritten files would be compressed, and all messages of the load are equal.
        *("--appendonly", "yes", "--appendfsync", appendfsync, "--rdbcompression", "no"),
    ]
    version = first_line([program, "--version"]).split()[2].removeprefix("v=")
    with server_process([program, *arguments], folder / "server.log", [port]) as process:
        yield _Redis(process, data_dir, port, version)


REDIS: Final = Peer(
    "redis",
    "Redis Streams, everysec",
    batches=(1,),
    is_flushed=False,
    settings="appendonly yes, appendfsync everysec; all messages are in memory, too",
    run=partial(_redis, appendfsync="everysec"),
)
REDIS_FLUSHED: Final = Peer(
    "redis-always",
    "Redis Streams, always",
    batches=(1,),
    is_flushed=True,
    settings="appendonly yes, appendfsync always: a flush before each answer, of all commands read",
    run=partial(_redis, appendfsync="always"),
)
