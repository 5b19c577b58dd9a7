"""Who may come in: every request shows an API key, and none comes more often than it may.

Source: RFC 6750 sections 2.1 and 3; RFC 6585 section 4.
"""

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.keyring import Keyring
from app.api.metrics import Metrics
from app.api.problems import FORBIDDEN, RATE_LIMITED, UNAUTHORIZED, Problem
from app.api.quotas import Quotas, Standing
from app.api.refusals import refuse
from app.api.strangers import CALLERS_MAX, Strangers
from app.config import Settings
from app.domain.accounts import ApiKey
from app.domain.accounts import Scope as KeyScope
from app.store import StoreUnavailable

OPEN_PATHS: Final = frozenset(("/healthz", "/readyz", "/openapi.json"))
"""What needs no key: probes have none, and the description tells how to get one."""

UNDER_WAY_MAX: Final = 50
"""Requests of one developer's key that are under way at a time. Each holds a connection, of which
the process has a thousand; twenty may be streams of progress."""

READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""The methods that change nothing, which are all that a read-only key may use."""

_CHALLENGE: Final = 'Bearer realm="rewind"'
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


class Gate:
    """Lets a request in with the key it shows, as `state.api_key` of its scope.

    A path that no route has is refused without a key like any other, so that nobody learns
    which there are. Requests without a good key are counted by the address they come from. Once
    these are too many, keys that were not good before are not looked up any more: guessing is
    bounded, and a neighbour behind the same address cannot lock out who is known already.
    """

    def __init__(
        self, app: ASGIApp, keyring: Keyring, settings: Settings, metrics: Metrics
    ) -> None:
        self._app = app
        self._keyring = keyring
        self._metrics = metrics
        self._strangers = Strangers(settings.unauthorized_requests_per_minute)
        self._keys = Quotas(CALLERS_MAX)
        self._under_way: Counter[str] = Counter()
        self._limits = requests_per_minute(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            key = await self._key(scope)
        except (Problem, StoreUnavailable) as refusal:
            await refuse(refusal, scope, receive, send)
            return
        scope.setdefault("state", {})["api_key"] = key
        standing = self._keys.take(key.id, self._limits[key.scope], time.monotonic())
        telling_send = _telling(send, standing)
        if standing.is_exceeded:
            self._metrics.count_rate_limited(key.scope)
            await refuse(too_many(standing), scope, receive, telling_send)
            return
        if key.scope is KeyScope.DEVELOPER and self._under_way[key.id] >= UNDER_WAY_MAX:
            self._metrics.count_rate_limited(key.scope)
            await refuse(TOO_MANY_AT_ONCE, scope, receive, telling_send)
            return
        if key.is_read_only and scope["method"] not in READING:
            await refuse(READ_ONLY, scope, receive, telling_send)
            return
        self._under_way[key.id] += 1
        try:
            await self._app(scope, receive, telling_send)
        finally:
            self._under_way[key.id] -= 1
            self._under_way += Counter()  # keys of which nothing is under way are forgotten

    async def _key(self, scope: Scope) -> ApiKey:
        """The key that the request shows.

        Raises:
            Problem: it shows none that is good.
            StoreUnavailable: nobody can tell.
        """
        token = _token(scope)
        standing = self._strangers.standing(scope)
        is_known = token is not None and self._keyring.has_seen(token)
        if standing.remaining == 0 and not is_known:
            self._metrics.count_rate_limited("none")
            raise too_many(standing)
        key = None if token is None else await self._keyring.key_of(token)
        if key is None:
            self._strangers.count(scope)
            self._metrics.count_unauthorized()
            raise _unauthorized(token)
        return key


def _token(scope: Scope) -> str | None:
    """What stands behind "Bearer" in the one Authorization header; None without it."""
    values = Headers(scope=scope).getlist("authorization")
    credentials = _CREDENTIALS.fullmatch(values[0]) if len(values) == 1 else None
    return None if credentials is None else credentials[1]


def _unauthorized(token: str | None) -> Problem:
    if token is None:
        detail, challenge = "give a key as `Authorization: Bearer rwk_...`", _CHALLENGE
    else:
        detail, challenge = "no key has this text", f'{_CHALLENGE}, error="invalid_token"'
    return Problem(UNAUTHORIZED, detail, headers={"www-authenticate": challenge})


def requests_per_minute(settings: Settings) -> Mapping[KeyScope, int]:
    """How often a key of each scope may ask."""
    return {
        KeyScope.DEVELOPER: settings.developer_requests_per_minute,
        KeyScope.OPERATOR: settings.operator_requests_per_minute,
    }


def too_many(standing: Standing) -> Problem:
    """The refusal of a request above a quota."""
    detail = f"allowed are {standing.limit} in a minute; it ends in {standing.reset_s} s"
    return Problem(RATE_LIMITED, detail, headers={"retry-after": str(standing.reset_s)})


READ_ONLY: Final = Problem(
    FORBIDDEN,
    "the key is read-only: it opens what is asked for by GET",
    headers={"www-authenticate": f'{_CHALLENGE}, error="insufficient_scope"'},
)

TOO_MANY_AT_ONCE: Final = Problem(
    RATE_LIMITED,
    f"allowed are {UNDER_WAY_MAX} at a time",
    headers={"retry-after": "1"},
)


def _telling(send: Send, standing: Standing) -> Send:
    async def telling_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(standing.headers())
        await send(message)

    return telling_send
