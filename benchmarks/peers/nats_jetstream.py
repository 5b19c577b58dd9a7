"""NATS JetStream: published messages with acknowledgements, and a consumer that pulls.

Source: NATS client protocol; JetStream wire API (STREAM.CREATE, CONSUMER.CREATE, MSG.NEXT).
"""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.frames import MESSAGE
from benchmarks.peers.exchange import (
    Consumer,
    ErrorAnswer,
    Lines,
    MessageCounter,
    Producer,
    Received,
)
from benchmarks.peers.peer import (
    Peer,
    RunningPeer,
    connect,
    find_program,
    first_line,
    server_process,
)
from benchmarks.zookeeper_server import free_port

PULL_MESSAGES: Final = 1_000
"""200 KB, as in the paper. The next request is sent before the messages of the last one arrive."""

PULLS_IN_FLIGHT: Final = 2
API: Final = "$JS.API"

_INBOX: Final = b"_INBOX.bench"
_PING: Final = b"PING\r\n"
_PONG: Final = b"PONG\r\n"
_HELLO: Final = b'CONNECT {"verbose":false,"pedantic":false,"lang":"raw","version":"1"}\r\n'


def publish(subject: str, reply: bytes, payload: bytes) -> bytes:
    """Return an encoded message, which the server answers at `reply`."""
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply, len(payload), payload)


class PublishAnswers:
    """Counts the acknowledgements of a stream, each of which is a header line and a JSON line."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._count = 0

    def receive(self, data: bytes) -> Received:
        """Count the acknowledged messages, and answer the server's pings.

        Raises:
            ErrorAnswer: the stream rejected a message.
        """
        lines = self._lines.complete(data)
        if b'"error"' in lines or b"-ERR" in lines:
            raise ErrorAnswer(lines.decode(errors="replace"))
        pings = lines.count(_PING)
        before = self._count // 2
        self._count += lines.count(b"\n") - pings
        return Received(self._count // 2 - before, _PONG * pings)


class PulledMessages:
    """Counts pulled messages, and requests more when a thousand have arrived."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._counter = MessageCounter()
        self._count = 0

    def receive(self, data: bytes) -> Received:
        """Count the messages that end in `data`."""
        messages = self._counter.count(data)
        before = self._count // PULL_MESSAGES
        self._count += messages
        pulls = self._count // PULL_MESSAGES - before
        return Received(messages, self._request * pulls + _PONG * data.count(_PING))


class _Nats(RunningPeer):
    def __init__(self, process: psutil.Process, data_dir: Path, port: int, version: str) -> None:
        super().__init__(process, data_dir)
        self._port = port
        self.version = version

    def create_log(self, name: str) -> None:
        self._call(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "storage": "file"})

    def producer(self, name: str, batch: int) -> Producer:
        assert batch == 1, "JetStream 2.9 has no request with several messages"
        return Producer(self._connect(), publish(name, _INBOX, MESSAGE), batch, PublishAnswers())

    def consumer(self, name: str, batch: int, messages: int) -> Consumer:  # noqa: ARG002
        settings = {"ack_policy": "none", "deliver_policy": "all", "replay_policy": "instant"}
        created = self._call(f"CONSUMER.CREATE.{name}", {"stream_name": name, "config": settings})
        pull = publish(
            f"{API}.CONSUMER.MSG.NEXT.{name}.{created['name']}",
            _INBOX,
            json.dumps({"batch": PULL_MESSAGES}).encode(),
        )
        return Consumer(self._connect(), pull * PULLS_IN_FLIGHT, PulledMessages(pull))

    def _connect(self) -> socket.socket:
        """Return a connection that is subscribed to the inbox."""
        sock = connect(self._port)
        sock.sendall(_HELLO + b"SUB %s 1\r\n" % _INBOX + _PING)
        received = b""
        while not received.endswith(_PONG):
            received += sock.recv(2**16)
        return sock

    def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to JetStream's API, and return the answer.

        Raises:
            ErrorAnswer: the server rejected it.
        """
        with self._connect() as sock, sock.makefile("rb") as answers:
            sock.sendall(publish(f"{API}.{name}", _INBOX, json.dumps(arguments).encode()))
            header = answers.readline().split()
            while header[0] != b"MSG":
                header = answers.readline().split()
            answer: dict[str, Any] = json.loads(answers.read(int(header[-1])))
        if "error" in answer:
            raise ErrorAnswer(str(answer["error"]))
        return answer


@contextmanager
def _nats(folder: Path) -> Iterator[RunningPeer]:
    program = find_program("nats-server", "nats-server")
    port = free_port()
    data_dir = folder / "data"
    data_dir.mkdir()
    arguments = ["--addr", "127.0.0.1", "--port", str(port), "-js", "--store_dir", str(data_dir)]
    version = first_line([program, "--version"]).split()[1].removeprefix("v")  # name: v2.9.10
    with server_process([program, *arguments], folder / "server.log", [port]) as process:
        yield _Nats(process, data_dir, port, version)


NATS: Final = Peer(
    "nats",
    "NATS JetStream",
    batches=(1,),
    is_flushed=False,
    settings="one replica, file storage; defaults: it flushes every 2 minutes; no consumer acks",
    run=_nats,
)
