"""Sends webhooks: a URL, headers and a body go in, what became of them comes out as a value."""

import codecs
import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from http.client import responses
from typing import Final, Self

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected, Unreachable
from app.webhooks.dialer import Dialer
from app.webhooks.guard import Guard, Origin, UrlRefused
from app.webhooks.http_connection import EXCERPT_BYTES, Answer, NoAnswer
from app.webhooks.limits import SenderLimits
from app.webhooks.pool import ConnectionPool, Exchanged, MayStart, always
from app.webhooks.request import HeaderRefused, encode_get, encode_post
from app.webhooks.retry_after import retry_after_s

_POOLS_KEPT: Final = 256
"""Above this many pools, those without a connection are forgotten."""

_URLS_KEPT: Final = 4096

_Decoder: Final = codecs.getincrementaldecoder("utf-8")


class WebhookSender:
    """Sends to any number of receivers from one event loop; an async context manager.

    Connections are kept alive and shared by all URLs of one scheme, host and port. Redirects are
    not followed. Whatever a receiver does is an outcome; nothing is raised but a cancel.
    `tls` is for receivers whose certificates only a private authority vouches for.
    """

    def __init__(
        self,
        guard: Guard,
        limits: SenderLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits or SenderLimits()
        self._dialer = Dialer(guard, self._limits, tls or ssl.create_default_context())
        self._target = lru_cache(_URLS_KEPT)(guard.check_url)
        self._pools: dict[Origin, ConnectionPool] = {}

    async def __aenter__(self) -> Self:
        """Nothing to open: connections are made when they are needed."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every idle connection; whoever still sends is to be cancelled before."""
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
    ) -> AttemptOutcome:
        """POST `body` to `url` once.

        A connection that the receiver had closed while it was idle is replaced once, and this
        counts as the same attempt. `may_start` is asked right before bytes leave, each time; where
        it says no, the outcome is `NotSent`.
        """
        try:
            target = self._target(url)
            request = encode_post(target, headers, body)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}")
        answer = await self._pool(target.origin).exchange(request, may_start)
        return _outcome(answer, time.time())

    async def send_and_read(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[AttemptOutcome, str | None]:
        """POST `body` to `url` once: the outcome, and how the body of the answer begins, as text.

        The text is of `EXCERPT_BYTES` at most, None where no answer came; nothing is unpacked.
        """
        try:
            target = self._target(url)
            request = encode_post(target, headers, body)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}"), None
        answer = await self._pool(target.origin).exchange(request, body_bytes_kept=EXCERPT_BYTES)
        text = _text(answer.excerpt) if isinstance(answer, Answer) else None
        return _outcome(answer, time.time()), text

    async def ask(
        self,
        url: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        body_bytes_max: int,
    ) -> tuple[AttemptOutcome, bytes | None]:
        """GET `url` once, with `query` behind its own: the outcome, and the body of the answer.

        The body is None when it is longer than `body_bytes_max` or did not come to its end. It
        is as the receiver sent it; nothing is unpacked.
        """
        try:
            target = self._target(url)
            request = encode_get(target, query, headers)
        except (UrlRefused, HeaderRefused) as refusal:
            return Unreachable(f"not sent: {refusal}"), None
        answer = await self._pool(target.origin).exchange(request, body_bytes_kept=body_bytes_max)
        body = answer.body if isinstance(answer, Answer) else None
        return _outcome(answer, time.time()), body

    def _pool(self, origin: Origin) -> ConnectionPool:
        pool = self._pools.get(origin)
        if pool is None:
            self._forget_unused_pools()
            pool = ConnectionPool(lambda: self._dialer.dial(origin), self._limits)
            self._pools[origin] = pool
        return pool

    def _forget_unused_pools(self) -> None:
        if len(self._pools) >= _POOLS_KEPT:
            self._pools = {key: pool for key, pool in self._pools.items() if not pool.is_unused}


def _outcome(answer: Exchanged, now_s: float) -> AttemptOutcome:
    if isinstance(answer, NotSent):
        return answer
    if isinstance(answer, NoAnswer):
        return Unreachable(answer.reason)
    if 200 <= answer.status < 300:
        return Delivered(answer.status)
    wait_s = None if answer.retry_after is None else retry_after_s(answer.retry_after, now_s)
    return Rejected(answer.status, wait_s, _refusal(answer.status), _text(answer.excerpt))


def _text(excerpt: bytes) -> str:
    """What can be read of it; a letter that was cut at its end is left out."""
    return _Decoder("replace").decode(excerpt)


def _refusal(status: int) -> str:
    note = "; redirects are not followed" if 300 <= status < 400 else ""
    return f"HTTP {status} {responses.get(status, '(unknown)')}{note}"
