"""SASL authentication of connections, with the limits that hold before it has succeeded.

Source: KIP-12, KIP-43, KIP-84, KIP-152 (SaslAuthenticate), KIP-368 (re-authentication).
"""

import hmac
import logging
import secrets
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from logbroker.errors import ProtocolViolation
from logbroker.security.principal import USER_KIND, Principal
from logbroker.security.scram import (
    AuthenticationFailed,
    ScramCredential,
    ScramExchange,
    ScramMechanism,
    salt_password,
    verify_password,
)
from logbroker.security.users import DEFAULT_ITERATIONS, Users
from logbroker.server.connection import Connection
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.worker_pool import WorkerPool
from logbroker.wire.apis import ApiKey
from logbroker.wire.error_codes import (
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
)
from logbroker.wire.messages import decode_message, encode_message
from logbroker.wire.receive_buffer import HEADER_BYTES_MIN
from logbroker.wire.request import RequestHeader, read_request_header
from logbroker.wire.response_queue import PendingResponse

log = logging.getLogger("logbroker.sasl")

PLAIN: Final = "PLAIN"
SCRAM: Final = {each.sasl_name: each for each in ScramMechanism}

AUTHENTICATION_TIMEOUT_S: Final = 30.0
"""A connection that is not authenticated after this time is closed."""

FRAME_BYTES_MAX: Final = 16 * 1024
"""The largest request before authentication; a frame never enlarges the receive buffer."""

REQUESTS_MAX: Final = 32
"""Requests before authentication; a client needs four."""

PASSWORD_CHARS_MAX: Final = 1024

FAILED: Final = "authentication failed: wrong user name, password or mechanism"
"""The message for clients, which says no more to those who guess."""

_SASL_KEYS: Final = (int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE))
_TOKEN_SIZE: Final = struct.Struct(">i")


class SaslSettings(NamedTuple):
    """The enabled mechanisms, the life of a session (0: unlimited) and the delay of failures."""

    mechanisms: tuple[str, ...]
    max_reauth_ms: int
    failure_delay_ms: int
    request_bytes_max: int


class SaslServer:
    """What the gates of a broker share; `users` returns the current users."""

    def __init__(
        self,
        settings: SaslSettings,
        users: Callable[[], Users],
        loop: SocketLoop,
        pool: WorkerPool,
        counters: Counters,
    ) -> None:
        self.settings = settings
        self.users = users
        self.loop = loop
        self.pool = pool
        self.counters = counters
        self._secret = secrets.token_bytes(32)

    def credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        """Return the credential of a user; an unknown one gets one that no password matches.

        So the answers do not say whether a user exists.
        """
        found = self.users().credentials(user).get(mechanism)
        if found is not None:
            return found
        salt = hmac.digest(self._secret, user.encode(), "sha256")[:16]
        key = secrets.token_bytes(mechanism.digest_bytes)
        return ScramCredential(salt, key, key, DEFAULT_ITERATIONS)


class SaslGate:
    """Stands before one connection: only authentication passes until it has succeeded.

    Later, SaslHandshake begins a re-authentication of the same principal, if sessions end.
    """

    def __init__(self, connection: Connection, server: SaslServer) -> None:
        self._connection = connection
        self._server = server
        self._mechanism: str | None = None
        self._exchange: ScramExchange | None = None
        self._is_raw = False
        """Whether tokens come without headers, after SaslHandshake v0."""
        self._is_checking = False
        self._is_failed = False
        self._is_authenticated = False
        self._requests = 0
        self._expires_s = 0.0
        self._deadline = server.loop.call_at(
            server.loop.now_s + AUTHENTICATION_TIMEOUT_S, self._expire
        )
        connection.delayed.add(self)
        connection.buffer.limit_frames(HEADER_BYTES_MIN, FRAME_BYTES_MAX)

    def abandon(self) -> None:
        """Cancel the timer; the connection is closed."""
        self._deadline.cancel()

    def is_closed_to(self, view: memoryview, frames: list[tuple[int, int]]) -> bool:
        """Return whether any of the frames must pass `admit`."""
        if not self._is_authenticated or self._server.loop.now_s >= self._expires_s:
            return True
        return any(view[start] << 8 | view[start + 1] in _SASL_KEYS for start, _ in frames)

    def admit(self, frame: memoryview) -> bool:
        """Handle a frame of SASL, or return whether another one may be served.

        Raises:
            ProtocolViolation: the request is not allowed before authentication.
        """
        if self._is_failed:
            return False
        if self._is_raw:
            self._read_token(bytes(frame), None, self._connection.responses.add())
            return False
        api_key = frame[0] << 8 | frame[1]
        if api_key in _SASL_KEYS:
            self._handle(frame)
            return False
        if self._is_authenticated and self._server.loop.now_s < self._expires_s:
            return True
        self._requests += 1
        if self._is_authenticated:
            raise ProtocolViolation("the session has expired; the client must re-authenticate")
        if api_key != ApiKey.API_VERSIONS or self._requests > REQUESTS_MAX:
            raise ProtocolViolation(f"API {api_key} before authentication")
        return True

    def _handle(self, frame: memoryview) -> None:
        header, body = read_request_header(frame)
        request = decode_message(header, frame, body)
        self._connection.client_id = header.client_id
        self._server.counters.requests[header.api_key] += 1
        self._requests += 1
        if self._is_checking or (self._requests > REQUESTS_MAX and not self._is_authenticated):
            raise ProtocolViolation("too many requests before authentication")
        response = self._connection.responses.add()
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            self._begin(request.mechanism, header, response)
        else:
            self._read_token(bytes(request.auth_bytes), header, response)

    def _begin(self, mechanism: str, header: RequestHeader, response: PendingResponse) -> None:
        is_enabled = mechanism in self._server.settings.mechanisms
        self._mechanism = mechanism if is_enabled else None
        self._exchange = None
        self._is_raw = is_enabled and header.api_version == 0
        if self._is_raw:
            self._connection.buffer.limit_frames(0, FRAME_BYTES_MAX)
        message = SaslHandshakeResponse(
            error_code=NONE if is_enabled else UNSUPPORTED_SASL_MECHANISM,
            mechanisms=list(self._server.settings.mechanisms),
        )
        response.complete([encode_message(header, message)])

    def _read_token(
        self, token: bytes, header: RequestHeader | None, response: PendingResponse
    ) -> None:
        """Handle a token of the client; without a header the answer is a token alone."""
        try:
            if self._mechanism is None:
                self._answer(header, response, ILLEGAL_SASL_STATE, "SaslHandshake comes first")
            elif self._mechanism == PLAIN:
                self._check_plain(token, header, response)
            elif self._exchange is None:
                self._exchange = ScramExchange(SCRAM[self._mechanism], secrets.token_urlsafe(24))
                user = self._exchange.read_first(token)
                credential = self._server.credential(user, SCRAM[self._mechanism])
                self._answer(header, response, token=self._exchange.challenge(credential))
            else:
                verifier = self._exchange.finish(token)
                self._succeed(self._exchange.user, header, response, verifier)
        except AuthenticationFailed as failure:
            self._fail(failure, header, response)

    def _check_plain(
        self, token: bytes, header: RequestHeader | None, response: PendingResponse
    ) -> None:
        """Verify a password on another thread, since that takes some milliseconds (RFC 4616)."""
        try:
            authorization_id, user, password = token.decode().split("\0")
        except ValueError:
            raise AuthenticationFailed("the PLAIN message is malformed") from None
        if authorization_id not in ("", user):
            raise AuthenticationFailed("the authorization id differs from the user name")
        if not user or not password or len(password) > PASSWORD_CHARS_MAX:
            raise AuthenticationFailed("user name or password is empty or too long")
        self._is_checking = True
        credentials = dict(self._server.users().credentials(user))

        def check() -> bool:
            for mechanism, credential in credentials.items():
                return verify_password(mechanism, credential, password)
            # An unknown user takes as long as a known one.
            salt_password(ScramMechanism.SCRAM_SHA_256, password, bytes(16), DEFAULT_ITERATIONS)
            return False

        self._server.pool.submit(check, partial(self._finish_plain, user, header, response))

    def _finish_plain(
        self,
        user: str,
        header: RequestHeader | None,
        response: PendingResponse,
        result: bool | Exception,
    ) -> None:
        self._is_checking = False
        if not self._connection.is_open:
            return
        try:
            if result is not True:
                raise AuthenticationFailed("wrong user name or password")
            self._succeed(user, header, response, b"")
        except AuthenticationFailed as failure:
            self._fail(failure, header, response)
        self._connection.send()

    def _succeed(
        self, user: str, header: RequestHeader | None, response: PendingResponse, token: bytes
    ) -> None:
        connection, settings = self._connection, self._server.settings
        principal = Principal(USER_KIND, user)
        if self._is_authenticated and principal != connection.principal:
            raise AuthenticationFailed(f"re-authentication of {connection.principal} as another")
        connection.principal = principal
        self._is_authenticated = True
        self._is_raw = False
        self._mechanism = self._exchange = None
        self._deadline.cancel()
        connection.delayed.discard(self)
        connection.buffer.limit_frames(HEADER_BYTES_MIN, settings.request_bytes_max)
        if settings.max_reauth_ms:
            self._expires_s = self._server.loop.now_s + settings.max_reauth_ms / 1000
        else:
            connection.gate = None
        self._answer(header, response, token=token, lifetime_ms=settings.max_reauth_ms)

    def _fail(
        self,
        failure: AuthenticationFailed,
        header: RequestHeader | None,
        response: PendingResponse,
    ) -> None:
        """Answer after a delay, which slows down guessing, and close the connection."""
        self._is_failed = True
        self._server.counters.authentication_failures += 1
        connection = self._connection
        log.warning(
            "authentication failed peer=%s listener=%s mechanism=%s reason=%s",
            connection.peer,
            connection.listener,
            self._mechanism,
            failure,
        )

        def answer() -> None:
            if not connection.is_open:
                return
            if header is not None:
                self._answer(header, response, SASL_AUTHENTICATION_FAILED, FAILED)
                connection.send()
            connection.close()

        loop = self._server.loop
        loop.call_at(loop.now_s + self._server.settings.failure_delay_ms / 1000, answer)

    def _answer(
        self,
        header: RequestHeader | None,
        response: PendingResponse,
        error_code: int = NONE,
        error_message: str | None = None,
        *,
        token: bytes = b"",
        lifetime_ms: int = 0,
    ) -> None:
        if header is None:
            response.complete([_TOKEN_SIZE.pack(len(token)) + token])
            return
        message = SaslAuthenticateResponse(
            error_code=error_code,
            error_message=error_message,
            auth_bytes=token,
            session_lifetime_ms=lifetime_ms,
        )
        response.complete([encode_message(header, message)])
        if error_code != NONE:
            self._server.counters.count_error(header.api_key, error_code)

    def _expire(self) -> None:
        self._server.counters.authentication_failures += 1
        self._connection.close(f"not authenticated in {AUTHENTICATION_TIMEOUT_S:.0f} s")


def refuse_handshake(_request: Any) -> SaslHandshakeResponse:
    """Answer SaslHandshake where no authentication is expected."""
    return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE, mechanisms=[])


def refuse_authenticate(_request: Any) -> SaslAuthenticateResponse:
    """Answer SaslAuthenticate where no authentication is expected."""
    return SaslAuthenticateResponse(
        error_code=ILLEGAL_SASL_STATE,
        error_message="the listener expects no authentication, or the client is authenticated",
        auth_bytes=b"",
        session_lifetime_ms=0,
    )
