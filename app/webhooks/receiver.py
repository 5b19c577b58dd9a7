"""A receiver of webhooks: verifies, answers challenges, and can be down, slow or unwilling.

It stands on the developer's side of the wire: `rewind listen`, the demo and the tests run it.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from http.client import responses
from typing import Final, NamedTuple
from urllib.parse import parse_qs

import httptools

from app.webhooks.challenge import TOKEN_PARAMETER, crc_answer, is_ping
from app.webhooks.signing import SignatureRefused, verify

_BODY_BYTES_MAX: Final = 20 * 2**20
_HEAD_BYTES_MAX: Final = 64 * 2**10
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Verdict(StrEnum):
    """What the receiver thinks of a signature."""

    VERIFIED = "verified"
    REFUSED = "refused"
    UNCHECKED = "unchecked"
    """There is no secret to check with."""


@dataclass(frozen=True, slots=True)
class ReceivedWebhook:
    """One POST as it came, and what it was answered.

    `event_id` is empty when the request names none; `problem` says why a signature was refused.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    received_ms: int
    status: int
    verdict: Verdict
    problem: str | None = None

    @property
    def event_id(self) -> str:
        """The same over all attempts and replays of an event."""
        return self.headers.get("webhook-id", "")

    @property
    def replay_id(self) -> str | None:
        """The replay that sent it; None for a live delivery."""
        return self.headers.get("webhook-replay-id")

    @property
    def is_ping(self) -> bool:
        """Whether it only asks if this receiver wants webhooks."""
        return is_ping(self.event_id, self.body)


@dataclass(frozen=True, slots=True)
class ReceivedChallenge:
    """One GET that asked for proof; `is_answered` only where there is a secret to do it with."""

    path: str
    received_ms: int
    is_answered: bool


def _ignore(_: ReceivedWebhook | ReceivedChallenge) -> None:
    """What a receiver does that nobody listens to."""


class WebhookReceiver:
    """An HTTP server that takes webhooks on every path, pings among them.

    `secret` may be set or replaced at any time. With one, a request whose signature does not
    hold is answered with 401, and challenges (CRC) are answered; without one they are refused
    with 403. `on_webhook` is called on the event loop for every POST and `on_challenge` for every
    challenge, before it is answered.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        secret: str | None = None,
        on_webhook: Callable[[ReceivedWebhook], None] = _ignore,
        on_challenge: Callable[[ReceivedChallenge], None] = _ignore,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.port = port
        """The port taken, from the first `start` on; it stays the same over stops."""
        self.secret = secret
        self._on_webhook = on_webhook
        self._on_challenge = on_challenge
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.answer(204)

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def answer(self, status: int, *, delay_s: float = 0.0, retry_after: str | None = None) -> None:
        """Answer like this from now on."""
        self._status = status
        self._delay_s = delay_s
        self._extra = "" if retry_after is None else f"retry-after: {retry_after}\r\n"

    async def start(self) -> None:
        """Listen, on the port of the last time if there was one.

        Raises:
            OSError: the port is taken.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._take, self._connections), self.host, self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Go down: nobody listens, and every connection is cut."""
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._connections):
            connection.cut()
        await self._server.wait_closed()
        self._server = None

    def _take(self, request: "_Request") -> "_Response":
        if request.method == b"GET":
            return self._take_challenge(request)
        if request.method != b"POST":
            return _METHOD_REFUSED
        verdict, problem = self._judge(request.headers, request.body)
        status = 401 if verdict is Verdict.REFUSED else self._status
        now_ms = time.time_ns() // 1_000_000
        path, headers, body = request.path, request.headers, request.body
        self._on_webhook(ReceivedWebhook(path, headers, body, now_ms, status, verdict, problem))
        return _Response(status, self._extra, delay_s=self._delay_s)

    def _take_challenge(self, request: "_Request") -> "_Response":
        tokens = parse_qs(request.path.partition("?")[2]).get(TOKEN_PARAMETER)
        if tokens is None:
            return _METHOD_REFUSED
        now_ms = time.time_ns() // 1_000_000
        self._on_challenge(ReceivedChallenge(request.path, now_ms, self.secret is not None))
        if self.secret is None:
            return _Response(403)
        return _Response(200, _JSON, crc_answer(self.secret, tokens[0]))

    def _judge(self, headers: Mapping[str, str], body: bytes) -> tuple[Verdict, str | None]:
        if self.secret is None:
            return Verdict.UNCHECKED, None
        try:
            verify(self.secret, headers, body, time.time())
        except SignatureRefused as refusal:
            return Verdict.REFUSED, str(refusal)
        return Verdict.VERIFIED, None


class _Request(NamedTuple):
    method: bytes
    path: str
    headers: Mapping[str, str]
    body: bytes
    keeps_alive: bool


class _Response(NamedTuple):
    """What a request is answered; `extra` holds whole header lines."""

    status: int
    extra: str = ""
    body: bytes = b""
    delay_s: float = 0.0
    closes: bool = False


_METHOD_REFUSED: Final = _Response(405, closes=True)
_JSON: Final = "content-type: application/json\r\n"

Take = Callable[[_Request], _Response]


class _Connection(asyncio.Protocol):
    """Reads requests off one connection and answers each."""

    def __init__(self, take: Take, connections: "set[_Connection]") -> None:
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._complete: list[_Request] = []
        self._begin()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)

    def cut(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)
            return
        for request in self._complete:
            self._answer(request)
        self._complete.clear()
        if self._received_bytes > self._bytes_max:
            self._refuse(413 if self._is_head_complete else 431)

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._is_head_complete = True
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(_CONTINUE)

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        path = self._path.decode("latin-1")
        body = b"".join(self._body)
        keeps_alive = self._parser.should_keep_alive()
        self._complete.append(
            _Request(self._parser.get_method(), path, self._headers, body, keeps_alive)
        )
        self._begin()

    @property
    def _bytes_max(self) -> int:
        return _BODY_BYTES_MAX if self._is_head_complete else _HEAD_BYTES_MAX

    def _begin(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._received_bytes = 0
        self._is_head_complete = False

    def _answer(self, request: _Request) -> None:
        status, extra, body, delay_s, closes = self._take(request)
        keeps_alive = request.keeps_alive and not closes
        answer = _head(status, extra, len(body), keeps_alive) + body
        if delay_s:
            self._loop.call_later(delay_s, self._write, answer, keeps_alive)
        else:
            self._write(answer, keeps_alive)

    def _write(self, answer: bytes, keeps_alive: bool) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(answer)
        if not keeps_alive:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        self._write(_head(status, "", 0, keeps_alive=False), keeps_alive=False)


@lru_cache(maxsize=64)
def _head(status: int, extra: str, body_bytes: int, keeps_alive: bool) -> bytes:
    length = "" if status in (204, 304) else f"content-length: {body_bytes}\r\n"
    close = "" if keeps_alive else "connection: close\r\n"
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\n{length}{extra}{close}\r\n".encode()
