"""Sessions: sign-in with an API key, the session cookie, CSRF checks and rate limits.

The cookie holds 32 random bytes; the store keeps a digest of them. The CSRF token of forms is
derived from these bytes, so another site, which cannot read the cookie, cannot create one.

Source: RFC 6265bis for the cookie and its prefix; OWASP Cross-Site Request Forgery Prevention Cheat
Sheet, "Employing HMAC CSRF Tokens" and "Fetch Metadata headers".
"""

import asyncio
import hmac
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.domain.accounts import ApiKey, Scope
from app.http.problems import FORBIDDEN, Problem
from app.http.request_log import client_host
from app.process import on_own_thread
from app.services.authentication import LOOKUP_TIMEOUT_S, Authenticator, KeyCache
from app.services.errors import ReadOnlyKey
from app.services.limits import KeyLimits
from app.services.services import Services
from app.services.single_flight import SingleFlight
from app.store import StoreUnavailable

SESSION_S: Final = 12 * 3_600.0
"""A working day. Revoking the API key ends the session within seconds."""

_COOKIE: Final = "rewind-console"
_SECURE_COOKIE: Final = f"__Host-{_COOKIE}"
"""Browsers accept a cookie with this prefix over https only, and for this host only."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Viewer:
    """A signed-in user: the API key of the session, and the CSRF token of its forms."""

    key: ApiKey
    csrf: str

    @property
    def may_change(self) -> bool:
        """Whether the key is not read-only."""
        return not self.key.is_read_only

    @property
    def is_operator(self) -> bool:
        """Whether the viewer sees all accounts and the log."""
        return self.key.scope is Scope.OPERATOR


class SignInNeeded(Exception):
    """The request has no cookie of a valid session."""


class SessionGuard:
    """Authenticates requests by session cookie, and limits the requests of each key."""

    def __init__(self, services: Services) -> None:
        self._services = services
        settings = services.settings
        self._api_keys = Authenticator(
            KeyCache(services.store.find_key), settings.unauthorized_requests_per_minute
        )
        # A cookie cannot be guessed. This limit bounds the database lookups of unknown ones.
        self._sessions = Authenticator(
            KeyCache(services.store.find_session_key, _TOKEN),
            settings.developer_requests_per_minute,
        )
        self._limits = KeyLimits(settings)
        # On own threads: neither requests nor the shutdown wait for these lookups.
        self._stream_checks: SingleFlight[str, ApiKey | None] = SingleFlight(on_own_thread)

    async def viewer(self, request: Request) -> Viewer:
        """Return who sent a request.

        Raises:
            SignInNeeded: the request has no valid session.
            RateLimited: the rate limit of the key is exceeded.
            StoreUnavailable: the session cannot be looked up.
        """
        token = request.cookies.get(self._cookie_name(request), "")
        key = await self._session_key(request, token)
        if key is None:
            raise SignInNeeded
        quota = self._limits.count_request(key)
        if quota.is_exceeded:
            raise quota.refusal()
        return Viewer(key, _csrf_token(token))

    def limit_concurrency(self, viewer: Viewer) -> AbstractContextManager[None]:
        """Count a developer's request as concurrent until the context ends, as the API does.

        Raises:
            RateLimited: the key has reached its limit of concurrent requests.
        """
        return self._limits.concurrent_request(viewer.key)

    async def is_signed_in(self, request: Request) -> bool:
        """Return whether the session of a request, valid when it arrived, is still valid."""
        token = request.cookies[self._cookie_name(request)]
        lookup = self._stream_checks.call(
            token, partial(self._services.store.find_session_key, token)
        )
        try:
            return await asyncio.wait_for(lookup, LOOKUP_TIMEOUT_S) is not None
        except (StoreUnavailable, TimeoutError):
            return True  # unknown; without the database the stream has no data to send either

    async def _session_key(self, request: Request, token: str) -> ApiKey | None:
        """Return the key of a session. Too many unknown cookies block further lookups."""
        if not _TOKEN.fullmatch(token):
            return None
        return await self._sessions.authenticate(token, client_host(request.scope) or "")

    async def sign_in(self, request: Request, api_key: str, response: Response) -> ApiKey | None:
        """Open a session and set its cookie on `response`. Returns None for an unknown API key.

        Raises:
            RateLimited: too many unknown keys came from the client's address.
            StoreUnavailable: the key cannot be looked up.
        """
        check_origin(request, self._services.settings.public_url)
        key = await self._api_keys.authenticate(api_key, client_host(request.scope) or "")
        if key is None:
            self._services.metrics.count_unauthorized()
            return None
        token = secrets.token_urlsafe(32)
        await run_in_threadpool(self._services.store.open_session, key.id, token, SESSION_S)
        self._sessions.keys.add(token, key)
        name = self._cookie_name(request)
        response.set_cookie(
            name,
            token,
            max_age=round(SESSION_S),
            # The prefix `__Host-` requires this path.
            path="/",
            secure=name == _SECURE_COOKIE,
            httponly=True,
            # Lax, so that links to the console from chats and mails work when signed in.
            samesite="lax",
        )
        return key

    async def sign_out(self, request: Request, response: Response) -> None:
        """End the session of a request and delete its cookie."""
        name = self._cookie_name(request)
        token = request.cookies.get(name, "")
        await run_in_threadpool(self._services.store.close_session, token)
        self._sessions.keys.evict(token)
        response.delete_cookie(name, path="/", secure=name == _SECURE_COOKIE, httponly=True)

    def _cookie_name(self, request: Request) -> str:
        # A forged header only makes the client's own cookie stricter.
        forwarded = request.headers.get("x-forwarded-proto", "")
        public_scheme = urlsplit(self._services.settings.public_url).scheme
        is_https = "https" in (request.url.scheme, forwarded, public_scheme)
        return _SECURE_COOKIE if is_https else _COOKIE


def _csrf_token(token: str) -> str:
    return hmac.new(token.encode(), b"form", sha256).hexdigest()


def check_origin(request: Request, public_url: str) -> None:
    """Reject a request that a page of another site sent, according to the browser.

    Raises:
        Problem: another site sent it.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_own = site in ("same-origin", "none")
    else:
        origin = request.headers.get("origin")
        host = request.headers.get("host", "")
        is_own = origin is None or origin == public_url or _netloc(origin) == host
    if not is_own:
        raise Problem(FORBIDDEN, "cross-site request: the form was sent by another site")


def _netloc(origin: str) -> str | None:
    """Return host and port of an origin; None for `null` and for an invalid one."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def check_change(request: Request, viewer: Viewer, csrf: str) -> None:
    """Reject a form that `viewer` may not submit.

    Raises:
        ReadOnlyKey: the key is read-only.
        Problem: the CSRF check failed.
    """
    check_form(request, viewer, csrf)
    if not viewer.may_change:
        raise ReadOnlyKey


def check_form(request: Request, viewer: Viewer, csrf: str) -> None:
    """Reject a form that does not come from a page of this session.

    Raises:
        Problem: the CSRF check failed.
    """
    check_origin(request, request.app.state.services.settings.public_url)
    if not hmac.compare_digest(csrf.encode(), viewer.csrf.encode()):
        raise Problem(FORBIDDEN, "invalid CSRF token: the session has changed; reload the page")


async def _viewer(request: Request) -> AsyncIterator[Viewer]:
    sessions: SessionGuard = request.app.state.sessions
    viewer = await sessions.viewer(request)
    # For the audit log and for error pages.
    request.state.viewer = viewer
    with sessions.limit_concurrency(viewer):
        yield viewer


ViewerDependency = Annotated[Viewer, Depends(_viewer)]
"""The signed-in user."""
