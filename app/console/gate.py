"""Who may look: people sign in with an API key, and a cookie stands for it from then on.

The cookie holds 32 random bytes, of which the store keeps a digest. The token of a form is derived
from them, so that a page elsewhere, which cannot read the cookie, cannot make one.

Source: RFC 6265bis for the cookie and its prefix; OWASP Cross-Site Request Forgery Prevention Cheat
Sheet, "Employing HMAC CSRF Tokens" and "Fetch Metadata headers".
"""

import asyncio
import hmac
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import Doors
from app.api.gate import (
    READ_ONLY,
    TOO_MANY_AT_ONCE,
    UNDER_WAY_MAX,
    requests_per_minute,
    too_many,
)
from app.api.keyring import PATIENCE_S, Keyring
from app.api.problems import FORBIDDEN, Problem
from app.api.quotas import Quotas
from app.api.single_flight import SingleFlight
from app.api.strangers import CALLERS_MAX, Strangers
from app.domain.accounts import ApiKey, Scope
from app.process import on_own_thread
from app.store import StoreUnavailable

SIGNED_IN_S: Final = 12 * 3_600.0
"""A day's work. An API key that is revoked ends it within seconds."""

_COOKIE: Final = "rewind-console"
_SECURE_COOKIE: Final = f"__Host-{_COOKIE}"
"""A browser takes it over https alone, and for this very host."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who is signed in: the key they showed, and the token of their forms."""

    key: ApiKey
    csrf: str

    @property
    def may_change(self) -> bool:
        """Whether there is anything that they may do besides looking."""
        return not self.key.is_read_only

    @property
    def is_operator(self) -> bool:
        """Whether they see all accounts, and the log."""
        return self.key.scope is Scope.OPERATOR


class SignInNeeded(Exception):
    """The request shows no cookie that stands for a key."""


class Gate:
    """Lets people in: the sessions of one process, and how often each may ask."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._api_keys = Keyring(doors.store.find_key)
        self._sessions = Keyring(doors.store.find_session_key, _TOKEN)
        self._strangers = Strangers(doors.settings.unauthorized_requests_per_minute)
        # A cookie cannot be guessed; that is looked for as often as a key may ask, and no more.
        self._guesses = Strangers(doors.settings.developer_requests_per_minute)
        self._quotas = Quotas(CALLERS_MAX)
        self._limits = requests_per_minute(doors.settings)
        self._under_way: Counter[str] = Counter()
        # Nobody waits for the answers to these, the end of the process neither.
        self._open_pages: SingleFlight[str, ApiKey | None] = SingleFlight(on_own_thread)

    async def viewer(self, request: Request) -> Viewer:
        """Who sent a request; one that would change something must come from a page of ours.

        Raises:
            SignInNeeded: nobody who is signed in.
            Problem: they ask too often, or may not change anything.
            StoreUnavailable: nobody can tell.
        """
        token = request.cookies.get(self._cookie(request), "")
        key = await self._key(request, token)
        if key is None:
            raise SignInNeeded
        standing = self._quotas.take(key.id, self._limits[key.scope], time.monotonic())
        if standing.is_exceeded:
            raise too_many(standing)
        return Viewer(key, _csrf(token))

    @contextmanager
    def under_way(self, viewer: Viewer) -> Iterator[None]:
        """Count a request of a developer as long as this lasts, as the API does.

        Raises:
            Problem: as many are under way as one key may have.
        """
        key = viewer.key
        if not viewer.is_operator and self._under_way[key.id] >= UNDER_WAY_MAX:
            raise TOO_MANY_AT_ONCE
        self._under_way[key.id] += 1
        try:
            yield
        finally:
            self._under_way[key.id] -= 1
            self._under_way += Counter()  # keys of which nothing is under way are forgotten

    async def is_signed_in(self, request: Request) -> bool:
        """Whether the cookie of a request, which was good when it came, stands for a key still."""
        token = request.cookies[self._cookie(request)]
        question = self._open_pages.ask(token, partial(self._doors.store.find_session_key, token))
        try:
            return await asyncio.wait_for(question, PATIENCE_S) is not None
        except (StoreUnavailable, TimeoutError):
            return True  # nobody can tell, and there is nothing to be told either

    async def _key(self, request: Request, token: str) -> ApiKey | None:
        """The key that a cookie stands for, which is not looked for after too many wrong ones."""
        if not _TOKEN.fullmatch(token):
            return None
        standing = self._guesses.standing(request.scope)
        if standing.remaining == 0 and not self._sessions.has_seen(token):
            raise too_many(standing)
        key = await self._sessions.key_of(token)
        if key is None:
            self._guesses.count(request.scope)
        return key

    async def sign_in(self, request: Request, api_key: str, response: Response) -> ApiKey | None:
        """Set the cookie of a new session on `response`; None when no key has this text.

        Raises:
            Problem: too many wrong ones came from where this one comes from.
            StoreUnavailable: nobody can tell.
        """
        check_origin(request, self._doors.settings.public_url)
        standing = self._strangers.standing(request.scope)
        if standing.remaining == 0 and not self._api_keys.has_seen(api_key):
            raise too_many(standing)
        key = await self._api_keys.key_of(api_key)
        if key is None:
            self._strangers.count(request.scope)
            self._doors.metrics.count_unauthorized()
            return None
        token = secrets.token_urlsafe(32)
        await run_in_threadpool(self._doors.store.open_session, key.id, token, SIGNED_IN_S)
        self._sessions.remember(token, key)
        name = self._cookie(request)
        response.set_cookie(
            name,
            token,
            max_age=round(SIGNED_IN_S),
            # A cookie with the prefix must be one of the whole host.
            path="/",
            secure=name == _SECURE_COOKIE,
            httponly=True,
            # Lax, so that a link to a job from a chat or a mail finds its reader signed in.
            samesite="lax",
        )
        return key

    async def sign_out(self, request: Request, response: Response) -> None:
        """End the session of a request, and take its cookie back."""
        name = self._cookie(request)
        token = request.cookies.get(name, "")
        await run_in_threadpool(self._doors.store.close_session, token)
        self._sessions.forget(token)
        response.delete_cookie(name, path="/", secure=name == _SECURE_COOKIE, httponly=True)

    def _cookie(self, request: Request) -> str:
        return _SECURE_COOKIE if self._is_https(request) else _COOKIE

    def _is_https(self, request: Request) -> bool:
        # Whoever forges the header only keeps their own cookie safer than need be.
        told = request.headers.get("x-forwarded-proto", "")
        public_url = self._doors.settings.public_url
        return "https" in (request.url.scheme, told, urlsplit(public_url).scheme)


def _csrf(token: str) -> str:
    return hmac.new(token.encode(), b"form", sha256).hexdigest()


def check_origin(request: Request, public_url: str) -> None:
    """Return unless a browser says that a page from elsewhere sent the request.

    Raises:
        Problem: it says so.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_ours = site in ("same-origin", "none")
    else:
        origin = request.headers.get("origin")
        is_ours = origin is None or origin == public_url or _host(origin) == _own_host(request)
    if not is_ours:
        raise Problem(FORBIDDEN, "the form was sent by a page of another site")


def _host(origin: str) -> str | None:
    """The host and port of an origin; None of `null`, and of what is none."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _own_host(request: Request) -> str:
    return request.headers.get("host", "")


def check_change(request: Request, viewer: Viewer, csrf: str) -> None:
    """Return when `viewer` may change something, and a page of theirs asks for it.

    Raises:
        Problem: the key is read-only, or the form is not one of theirs.
    """
    check_form(request, viewer, csrf)
    if not viewer.may_change:
        raise READ_ONLY


def check_form(request: Request, viewer: Viewer, csrf: str) -> None:
    """Return when a form came from a page that was made for `viewer`.

    Raises:
        Problem: it did not.
    """
    check_origin(request, request.app.state.doors.settings.public_url)
    if not hmac.compare_digest(csrf.encode(), viewer.csrf.encode()):
        raise Problem(FORBIDDEN, "the form is of another sign-in: load its page anew")


async def _viewer(request: Request) -> AsyncIterator[Viewer]:
    gate: Gate = request.app.state.gate
    viewer = await gate.viewer(request)
    # For the audit and for pages that tell of an error.
    request.state.viewer = viewer
    with gate.under_way(viewer):
        yield viewer


ViewerDependency = Annotated[Viewer, Depends(_viewer)]
"""Who is signed in, and asks."""


async def _operator(viewer: ViewerDependency) -> Viewer:
    if not viewer.is_operator:
        raise Problem(FORBIDDEN, "it takes an operator's key")
    return viewer


OperatorDependency = Annotated[Viewer, Depends(_operator)]
"""Who is signed in, and must be an operator."""


async def _changer(viewer: ViewerDependency) -> Viewer:
    if not viewer.may_change:
        raise READ_ONLY
    return viewer


ChangerDependency = Annotated[Viewer, Depends(_changer)]
"""Who is signed in, and may fill in forms that change something."""
