"""Requests to the receiver of a webhook: signed, with the webhook's headers and credentials."""

from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from app.domain.delivery import AttemptOutcome, Rejected
from app.domain.endpoint_options import (
    AUTHORIZATION,
    Authentication,
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    EndpointOptions,
)
from app.domain.receivers import Receiver
from app.webhooks.token_cache import TokenCache

_UNAUTHORIZED: Final = 401
_NONE: Final[Mapping[str, str]] = {}


class EndpointRequest(NamedTuple):
    """What a webhook's options add to a request; `timeout_s` is None for the sender's limit."""

    headers: Mapping[str, str]
    timeout_s: float | None


NO_ADDITIONS: Final = EndpointRequest(_NONE, None)


async def endpoint_request(
    tokens: TokenCache, webhook: Receiver, url: str | None = None
) -> EndpointRequest:
    """What the webhook's options add to a request to `url`, by default the webhook's.

    Headers and credentials are for the webhook's own server: another scheme, host or port gets
    none of them.

    Raises:
        TokenUnavailable: see `TokenCache.token`.
    """
    options = webhook.options
    if options is None:
        return NO_ADDITIONS
    if url is not None and url != webhook.url and _origin(url) != _origin(webhook.url):
        return EndpointRequest(_NONE, options.timeout_s)
    headers = options.headers
    if options.authentication is not None:
        value = await _authorization(tokens, options.authentication)
        headers = {**headers, AUTHORIZATION: value}
    return EndpointRequest(headers, options.timeout_s)


def note_outcome(tokens: TokenCache, options: EndpointOptions, outcome: AttemptOutcome) -> None:
    """Drop a token that the receiver rejected."""
    if isinstance(outcome, Rejected) and outcome.status == _UNAUTHORIZED:
        authentication = options.authentication
        if isinstance(authentication, ClientCredentials):
            tokens.reject(authentication)


async def _authorization(tokens: TokenCache, authentication: Authentication) -> str:
    match authentication:
        case BasicAuthentication(username, password):
            return f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"
        case BearerAuthentication(token):
            return f"Bearer {token}"
        case ClientCredentials():
            return f"Bearer {await tokens.token(authentication)}"


@lru_cache(1_024)
def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme.lower(), parts.hostname, parts.port
