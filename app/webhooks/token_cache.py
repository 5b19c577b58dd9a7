"""Access tokens for receivers that authenticate with OAuth 2.0 client credentials.

Tokens are requested with the sender of webhooks, so the same addresses are allowed and the same
proxy is used. A token is kept until shortly before it expires. Equal credentials share one token
and one request; after a failed request there is a pause, so that a failing server does not get a
request for each event.

Source: RFC 6749, sections 2.3.1, 4.4 and 5; RFC 6750, section 2.1.
"""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, urlencode

from app.domain.delivery import AttemptOutcome, Delivered, NotSent
from app.domain.endpoint_options import ClientCredentials, is_header_value

TOKEN_TIMEOUT_S: Final = 10.0
TOKEN_BYTES_MAX: Final = 8_192
ANSWER_BYTES_MAX: Final = 32 * 1_024

DEFAULT_LIFETIME_S: Final = 300.0
"""Of a token without `expires_in`."""

LIFETIME_S_MAX: Final = 86_400

EARLY_S: Final = 30.0
"""How long before its expiry a token is replaced, or half its lifetime if that is less."""

KEPT_S_MIN: Final = 10.0
"""A token is not requested again earlier, although a receiver rejects it."""

FAILURE_KEPT_S: Final = 3.0
CACHED_MAX: Final = 10_000

_ERRORS: Final = frozenset(
    (
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "unauthorized_client",
        "unsupported_grant_type",
        "invalid_scope",
    )
)
"""RFC 6749, section 5.2; other text of a server is not shown."""


class TokenUnavailable(Exception):
    """The token server issued no token; the message is for the webhook's owner."""


class FormSender(Protocol):
    """Sends the request for a token."""

    async def post_form(
        self, url: str, headers: Mapping[str, str], body: bytes, *, body_bytes_max: int
    ) -> tuple[AttemptOutcome, bytes | None]:
        """POST a form once; return the outcome and the response body, None if it is too long."""


class _Token(NamedTuple):
    text: str
    issued_s: float
    expires_s: float


class _Failure(NamedTuple):
    reason: str
    expires_s: float


class TokenCache:
    """The tokens of one process, for one event loop."""

    def __init__(self, sender: FormSender) -> None:
        self._sender = sender
        self._known: dict[ClientCredentials, _Token | _Failure] = {}
        self._requests: dict[ClientCredentials, asyncio.Task[_Token | _Failure]] = {}

    async def token(self, credentials: ClientCredentials) -> str:
        """A token that is valid now.

        Raises:
            TokenUnavailable: the server issued none.
        """
        known = self._known.get(credentials)
        if known is None or known.expires_s <= time.monotonic():
            known = await self._request_once(credentials)
        if isinstance(known, _Failure):
            raise TokenUnavailable(known.reason)
        return known.text

    def reject(self, credentials: ClientCredentials) -> None:
        """Request a new token next time: a receiver answered 401 to the present one."""
        known = self._known.get(credentials)
        if isinstance(known, _Token) and time.monotonic() - known.issued_s >= KEPT_S_MIN:
            del self._known[credentials]

    def close(self) -> None:
        """Cancel the requests in flight."""
        for request in self._requests.values():
            request.cancel()

    async def _request_once(self, credentials: ClientCredentials) -> _Token | _Failure:
        request = self._requests.get(credentials)
        if request is None:
            request = asyncio.create_task(self._request(credentials))
            self._requests[credentials] = request
            request.add_done_callback(lambda _: self._requests.pop(credentials))
        # Shielded: the timeout of one attempt must not cancel the request of others.
        return await asyncio.shield(request)

    async def _request(self, credentials: ClientCredentials) -> _Token | _Failure:
        sent_s = time.monotonic()
        headers, body = token_request(credentials)
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                outcome, answer = await self._sender.post_form(
                    credentials.token_url, headers, body, body_bytes_max=ANSWER_BYTES_MAX
                )
            found = _result(outcome, answer, sent_s)
        except TimeoutError:
            found = f"timeout: no complete response within {TOKEN_TIMEOUT_S:g} s"
        result: _Token | _Failure
        if isinstance(found, str):
            result = _Failure(f"token request: {found}", time.monotonic() + FAILURE_KEPT_S)
        else:
            result = found
        self._known.pop(credentials, None)
        self._known[credentials] = result
        if len(self._known) > CACHED_MAX:
            del self._known[next(iter(self._known))]
        return result


def token_request(credentials: ClientCredentials) -> tuple[dict[str, str], bytes]:
    """The headers and the body of the request for a token."""
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    form = {"grant_type": "client_credentials"}
    if credentials.scope is not None:
        form["scope"] = credentials.scope
    if credentials.audience is not None:
        form["audience"] = credentials.audience
    if credentials.in_body:
        form |= {"client_id": credentials.client_id, "client_secret": credentials.client_secret}
    else:
        # Section 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(credentials.client_id)}:{quote_plus(credentials.client_secret)}"
        headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return headers, urlencode(form).encode()


def _result(outcome: AttemptOutcome, answer: bytes | None, sent_s: float) -> _Token | str:
    """The token in a response, or why it has none."""
    assert not isinstance(outcome, NotSent), "token requests are never withheld"
    document = _document(answer)
    if not isinstance(outcome, Delivered):
        error = document.get("error")
        return f"{outcome.reason}, {error}" if error in _ERRORS else outcome.reason
    token, kind = document.get("access_token"), document.get("token_type", "bearer")
    if not isinstance(token, str) or len(token) > TOKEN_BYTES_MAX or not is_header_value(token):
        return f"the response has no access_token of up to {TOKEN_BYTES_MAX} characters"
    if not isinstance(kind, str) or kind.lower() != "bearer":
        return "the response has a token_type other than Bearer"
    lifetime_s = _lifetime_s(document.get("expires_in"))
    return _Token(token, sent_s, sent_s + lifetime_s - min(EARLY_S, lifetime_s / 2))


def _document(answer: bytes | None) -> dict[str, Any]:
    try:
        document = json.loads(answer or b"")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _lifetime_s(value: object) -> float:
    """Seconds of `expires_in`; some servers send it as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return DEFAULT_LIFETIME_S
    return float(min(value, LIFETIME_S_MAX))
