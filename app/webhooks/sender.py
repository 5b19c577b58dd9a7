"""The HTTP client of webhooks: sends one request and returns the outcome as a value."""

import codecs
import ssl
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http.client import responses
from typing import Final, Self

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected, Unreachable
from app.domain.egress_proxy import EgressProxy
from app.webhooks.dialer import Dialer
from app.webhooks.guard import CheckedUrl, Guard, Origin, UrlRefused
from app.webhooks.http_connection import EXCERPT_BYTES, HttpResponse, NoResponse
from app.webhooks.limits import SenderLimits
from app.webhooks.pool import ConnectionPool, ExchangeResult, MayStart, always
from app.webhooks.request import HeaderRefused, encode_get, encode_post
from app.webhooks.token_cache import TokenCache

_POOLS_KEPT: Final = 256
"""Above this number, pools without a connection are deleted."""

_URLS_KEPT: Final = 65_536
"""Checked URLs that are kept, half a kilobyte each: a check takes as long as a signature."""

_Decoder: Final = codecs.getincrementaldecoder("utf-8")

_DIGITS_MAX: Final = 10
"""Ten digits of seconds are three centuries; longer values are ignored."""


class WebhookSender:
    """Sends to any number of receivers from one event loop; an async context manager.

    Connections are kept alive and shared by all URLs of one scheme, host and port. Redirects are
    not followed. Whatever a receiver does is an outcome; only cancellation raises. `tls` allows
    certificates of a private authority; with `proxy` all connections are tunnels through it.
    """

    def __init__(
        self,
        guard: Guard,
        limits: SenderLimits | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: EgressProxy | None = None,
    ) -> None:
        self._limits = limits or SenderLimits()
        self._dialer = Dialer(guard, self._limits, tls, proxy)
        self._check_url = lru_cache(_URLS_KEPT)(guard.check_url)
        self._pools: dict[Origin, ConnectionPool] = {}
        self.tokens = TokenCache(self)

    async def __aenter__(self) -> Self:
        """Open nothing: connections are made when they are needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all idle connections; the caller cancels running requests before."""
        self.tokens.close()
        for pool in self._pools.values():
            pool.close()
        self._dialer.close()

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        may_start: MayStart = always,
        timeout_s: float | None = None,
    ) -> AttemptOutcome:
        """POST `body` to `url` once, within `timeout_s` if that is less than the sender's limit.

        If the receiver closed the connection while it was idle, a new one is opened once, within
        the same attempt. `may_start` is called right before each sending; if it returns False, the
        outcome is `NotSent`.
        """
        try:
            checked = self._check_url(url)
            request = encode_post(checked, headers, body)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}")
        result = await self._pool(checked.origin).exchange(
            request, url, may_start, timeout_s=timeout_s
        )
        return _outcome(result, time.time())

    async def send_and_read(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        timeout_s: float | None = None,
    ) -> tuple[AttemptOutcome, str | None]:
        """POST `body` to `url` once; return the outcome and the beginning of the response body.

        It has at most `EXCERPT_BYTES`, and is None without a response. Nothing is decompressed.
        """
        try:
            checked = self._check_url(url)
            request = encode_post(checked, headers, body)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}"), None
        pool = self._pool(checked.origin)
        result = await pool.exchange(
            request, url, body_bytes_kept=EXCERPT_BYTES, timeout_s=timeout_s
        )
        text = _text(result.excerpt) if isinstance(result, HttpResponse) else None
        return _outcome(result, time.time()), text

    async def get(
        self,
        url: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        body_bytes_max: int,
        timeout_s: float | None = None,
    ) -> tuple[AttemptOutcome, bytes | None]:
        """GET `url` once, with `query` added; return the outcome and the response body.

        The body is None if it is longer than `body_bytes_max` or incomplete. Nothing is
        decompressed.
        """
        try:
            checked = self._check_url(url)
            request = encode_get(checked, query, headers)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}"), None
        return await self._exchange_body(checked, request, url, body_bytes_max, timeout_s)

    async def post_form(
        self, url: str, headers: Mapping[str, str], body: bytes, *, body_bytes_max: int
    ) -> tuple[AttemptOutcome, bytes | None]:
        """POST `body` to `url` once; return the outcome and the response body, as `get` does."""
        try:
            checked = self._check_url(url)
            request = encode_post(checked, headers, body)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}"), None
        return await self._exchange_body(checked, request, url, body_bytes_max, None)

    async def _exchange_body(
        self,
        checked: CheckedUrl,
        request: bytes,
        url: str,
        body_bytes_max: int,
        timeout_s: float | None,
    ) -> tuple[AttemptOutcome, bytes | None]:
        result = await self._pool(checked.origin).exchange(
            request, url, body_bytes_kept=body_bytes_max, timeout_s=timeout_s
        )
        body = result.body if isinstance(result, HttpResponse) else None
        return _outcome(result, time.time()), body

    def _pool(self, origin: Origin) -> ConnectionPool:
        pool = self._pools.get(origin)
        if pool is None:
            self._delete_unused_pools()
            pool = ConnectionPool(lambda: self._dialer.dial(origin), self._limits)
            self._pools[origin] = pool
        return pool

    def _delete_unused_pools(self) -> None:
        if len(self._pools) >= _POOLS_KEPT:
            self._pools = {key: pool for key, pool in self._pools.items() if not pool.is_unused}


def _outcome(result: ExchangeResult, now_s: float) -> AttemptOutcome:
    if isinstance(result, NotSent):
        return result
    if isinstance(result, NoResponse):
        return Unreachable(result.reason)
    if 200 <= result.status < 300:
        return Delivered(result.status)
    wait_s = None if result.retry_after is None else retry_after_s(result.retry_after, now_s)
    return Rejected(result.status, wait_s, _reason(result.status), _text(result.excerpt))


def retry_after_s(value: str, now_s: float) -> float | None:
    """The wait that a Retry-After header asks for, in seconds from `now_s`; None if unreadable.

    A date in the past gives 0.

    Source: RFC 9110, section 10.2.3.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value) if len(value) <= _DIGITS_MAX else None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    # HTTP dates are in GMT; a date without a zone must not be read as local time.
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now_s)


def _text(excerpt: bytes) -> str:
    """The excerpt as text; an incomplete character at its end is dropped."""
    return _Decoder("replace").decode(excerpt)


def _reason(status: int) -> str:
    note = "; redirects are not followed" if 300 <= status < 400 else ""
    return f"HTTP {status} {responses.get(status, '(unknown)')}{note}"
