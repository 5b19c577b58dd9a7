"""A receiver of webhooks: verifies signatures, answers challenges, and can simulate faults.

`rewind listen`, the demo and the tests run it in the role of the developer.
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

from app.webhooks.challenge import TOKEN_PARAMETER, crc_response, is_ping
from app.webhooks.signing import SignatureRefused, verify

_BODY_BYTES_MAX: Final = 20 * 2**20
_HEAD_BYTES_MAX: Final = 64 * 2**10
_TURNS_OF_ACCEPT: Final = 3
"""Turns of the event loop between an accepted connection and `connection_made`, rounded up."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class SignatureStatus(StrEnum):
    """The result of a signature check."""

    VERIFIED = "verified"
    REFUSED = "refused"
    UNCHECKED = "unchecked"
    """The receiver has no secret."""


@dataclass(frozen=True, slots=True)
class ReceivedWebhook:
    """A received POST, and the status of the response.

    `event_id` is empty without a `webhook-id`; `problem` says why a signature is refused.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    received_ms: int
    status: int
    signature: SignatureStatus
    problem: str | None = None

    @property
    def event_id(self) -> str:
        """The event's id, the same in all attempts and replays."""
        return self.headers.get("webhook-id", "")

    @property
    def replay_id(self) -> str | None:
        """The id of the replay; None for a live delivery."""
        return self.headers.get("webhook-replay-id")

    @property
    def is_ping(self) -> bool:
        """Whether it is a ping of a verification."""
        return is_ping(self.event_id, self.body)


@dataclass(frozen=True, slots=True)
class ReceivedChallenge:
    """A received challenge; `is_answered` is False if the receiver has no secret."""

    path: str
    received_ms: int
    is_answered: bool


def _ignore(_: ReceivedWebhook | ReceivedChallenge) -> None:
    """The default callback."""


class WebhookReceiver:
    """An HTTP server that receives webhooks on every path.

    `secret` can be replaced at any time. With a secret, the response to an invalid signature is
    401, and challenges (CRC) are answered; without one, the response to challenges is 403. The
    callbacks run on the event loop before the response.
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
        """The actual port after the first `start`; a restart keeps it."""
        self.secret = secret
        self._on_webhook = on_webhook
        self._on_challenge = on_challenge
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self.answer(204)

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def answer(
        self,
        status: int,
        *,
        delay_s: float = 0.0,
        retry_after: str | None = None,
        body: bytes = b"",
    ) -> None:
        """Set the response to all following webhooks."""
        self._status = status
        self._response_body = body
        self._delay_s = delay_s
        self._extra = "" if retry_after is None else f"retry-after: {retry_after}\r\n"

    async def start(self) -> None:
        """Listen, after a restart on the same port.

        Raises:
            OSError: the port is in use.
        """
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._handle, self._connections),
            self.host,
            self.port,
            ssl=self._tls,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and abort all connections."""
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        for listener in self._server.sockets:
            loop.remove_reader(listener.fileno())
        # What was accepted before gets its protocol now: in a closed server it would stay open.
        for _ in range(_TURNS_OF_ACCEPT):
            await asyncio.sleep(0)
        self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        await self._server.wait_closed()
        self._server = None

    def _handle(self, request: "_Request") -> "_Response":
        if request.method == b"GET":
            return self._handle_challenge(request)
        if request.method != b"POST":
            return _METHOD_NOT_ALLOWED
        signature, problem = self._check_signature(request.headers, request.body)
        status = 401 if signature is SignatureStatus.REFUSED else self._status
        now_ms = time.time_ns() // 1_000_000
        path, headers, body = request.path, request.headers, request.body
        self._on_webhook(ReceivedWebhook(path, headers, body, now_ms, status, signature, problem))
        return _Response(status, self._extra, self._response_body, delay_s=self._delay_s)

    def _handle_challenge(self, request: "_Request") -> "_Response":
        tokens = parse_qs(request.path.partition("?")[2]).get(TOKEN_PARAMETER)
        if tokens is None:
            return _METHOD_NOT_ALLOWED
        now_ms = time.time_ns() // 1_000_000
        self._on_challenge(ReceivedChallenge(request.path, now_ms, self.secret is not None))
        if self.secret is None:
            return _Response(403)
        return _Response(200, _JSON, crc_response(self.secret, tokens[0]))

    def _check_signature(
        self, headers: Mapping[str, str], body: bytes
    ) -> tuple[SignatureStatus, str | None]:
        if self.secret is None:
            return SignatureStatus.UNCHECKED, None
        try:
            verify(self.secret, headers, body, time.time())
        except SignatureRefused as refusal:
            return SignatureStatus.REFUSED, str(refusal)
        return SignatureStatus.VERIFIED, None


class _Request(NamedTuple):
    method: bytes
    path: str
    headers: Mapping[str, str]
    body: bytes
    keeps_alive: bool


class _Response(NamedTuple):
    """The response to a request; `extra` has complete header lines."""

    status: int
    extra: str = ""
    body: bytes = b""
    delay_s: float = 0.0
    closes: bool = False


_METHOD_NOT_ALLOWED: Final = _Response(405, closes=True)
_JSON: Final = "content-type: application/json\r\n"

Handler = Callable[[_Request], _Response]


class _Connection(asyncio.Protocol):
    """Parses requests of one connection and responds to each."""

    def __init__(self, handle: Handler, connections: "set[_Connection]") -> None:
        self._loop = asyncio.get_running_loop()
        self._handle = handle
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

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)
            return
        for request in self._complete:
            self._respond(request)
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

    def _respond(self, request: _Request) -> None:
        status, extra, body, delay_s, closes = self._handle(request)
        keeps_alive = request.keeps_alive and not closes
        response = _head(status, extra, len(body), keeps_alive) + body
        if delay_s:
            self._loop.call_later(delay_s, self._write, response, keeps_alive)
        else:
            self._write(response, keeps_alive)

    def _write(self, response: bytes, keeps_alive: bool) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(response)
        if not keeps_alive:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        self._write(_head(status, "", 0, keeps_alive=False), keeps_alive=False)


@lru_cache(maxsize=64)
def _head(status: int, extra: str, body_bytes: int, keeps_alive: bool) -> bytes:
    length = "" if status in (204, 304) else f"content-length: {body_bytes}\r\n"
    close = "" if keeps_alive else "connection: close\r\n"
    return f"HTTP/1.1 {status} {responses.get(status, '')}\r\n{length}{extra}{close}\r\n".encode()
