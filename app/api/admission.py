"""Admission of requests: API keys, rate limits, and read-only keys.

Source: RFC 6750 sections 2.1 and 3; RFC 6585 section 4; draft-ietf-httpapi-ratelimit-headers,
version 03 section 3 for the fields and version 10 section 3 for the policy.
"""

import re
from contextlib import ExitStack
from typing import Annotated, Final, cast

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.error_responses import respond_with_error
from app.domain.accounts import ApiKey
from app.domain.accounts import Scope as KeyScope
from app.http.problems import UNAUTHORIZED, Problem
from app.http.request_log import client_host
from app.services.authentication import Authenticator, KeyCache
from app.services.errors import OperatorKeyRequired, RateLimited, ReadOnlyKey
from app.services.limits import WINDOW_S, KeyLimits, Quota
from app.services.services import Services
from app.store import StoreUnavailable

OPEN_PATHS: Final = frozenset(("/healthz", "/readyz", "/openapi.json"))
"""Paths that need no key: probes have none, and the description says how to get one."""

_READ_METHODS: Final = frozenset(("GET", "HEAD", "OPTIONS"))

_CHALLENGE: Final = 'Bearer realm="rewind"'
_CREDENTIALS: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE)


class RequestAdmission:
    """Admits a request with its API key, as `state.api_key` of its scope.

    Unknown paths are rejected without a key like all others, so that routes cannot be enumerated.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        settings = services.settings
        self._app = app
        self._metrics = services.metrics
        self._authenticator = Authenticator(
            KeyCache(services.store.find_key), settings.unauthorized_requests_per_minute
        )
        self._limits = KeyLimits(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or reject a request."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            key = await self._authenticate(scope)
        except (Problem, RateLimited, StoreUnavailable) as error:
            await respond_with_error(error, scope, receive, send)
            return
        scope.setdefault("state", {})["api_key"] = key
        quota = self._limits.count_request(key)
        send = _with_quota_headers(send, quota)
        with ExitStack() as admission:
            try:
                if quota.is_exceeded:
                    raise quota.refusal()
                admission.enter_context(self._limits.concurrent_request(key))
                if key.is_read_only and scope["method"] not in _READ_METHODS:
                    raise ReadOnlyKey
            except (RateLimited, ReadOnlyKey) as error:
                if isinstance(error, RateLimited):
                    self._metrics.count_rate_limited(key.scope)
                await respond_with_error(error, scope, receive, send)
                return
            await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope) -> ApiKey:
        """The API key of a request.

        Raises:
            Problem: it is missing or unknown.
            RateLimited, StoreUnavailable.
        """
        token = _bearer_token(scope)
        try:
            key = await self._authenticator.authenticate(token, client_host(scope) or "")
        except RateLimited:
            self._metrics.count_rate_limited("none")
            raise
        if key is None:
            self._metrics.count_unauthorized()
            raise _unauthorized(token)
        return key


def _bearer_token(scope: Scope) -> str | None:
    """The bearer token of the Authorization header; None without exactly one."""
    values = Headers(scope=scope).getlist("authorization")
    credentials = _CREDENTIALS.fullmatch(values[0]) if len(values) == 1 else None
    return None if credentials is None else credentials[1]


def _unauthorized(token: str | None) -> Problem:
    if token is None:
        detail, challenge = "send a key as `Authorization: Bearer rwk_...`", _CHALLENGE
    else:
        detail, challenge = "unknown API key", f'{_CHALLENGE}, error="invalid_token"'
    return Problem(UNAUTHORIZED, detail, headers={"www-authenticate": challenge})


def quota_headers(quota: Quota) -> dict[str, str]:
    """The response headers of a quota."""
    return {
        "ratelimit-limit": str(quota.limit),
        "ratelimit-remaining": str(quota.remaining),
        "ratelimit-reset": str(quota.reset_s),
        "ratelimit-policy": f'"requests";q={quota.limit};w={WINDOW_S}',
    }


def _with_quota_headers(send: Send, quota: Quota) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = quota_headers(quota).items()
            message["headers"] = [
                *message["headers"],
                *((name.encode(), value.encode()) for name, value in headers),
            ]
        await send(message)

    return send_with_headers


def caller_of(request: Request) -> ApiKey:
    """The API key of the request."""
    return cast("ApiKey", request.state.api_key)


async def _caller(request: Request) -> ApiKey:
    return caller_of(request)


CallerDependency = Annotated[ApiKey, Depends(_caller)]
"""The API key of the request."""


async def require_operator(request: Request) -> None:
    """Return if the request has an operator's key.

    Raises:
        OperatorKeyRequired: it has a developer's.
    """
    if caller_of(request).scope is not KeyScope.OPERATOR:
        raise OperatorKeyRequired


OperatorOnly = Depends(require_operator)
"""For the `dependencies` of a route for operators."""
