"""Authentication by API key or session token, and the accounts that a key may access."""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Final

from app.domain.accounts import ApiKey
from app.services.errors import AccountNotAllowed, FieldError
from app.services.limits import CALLERS_MAX, QuotaCounter
from app.services.single_flight import SingleFlight
from app.store import StoreUnavailable

FRESH_S: Final = 2.0
"""A cached key is used without a lookup for this long; a revoked key works no longer than this."""

STALE_S: Final = 600.0
"""A cached key works for this long while the database is down: long enough for an operator to see
it in the metrics, which need a key as well."""

LOOKUP_TIMEOUT_S: Final = 1.0
"""How long a request with a cached key waits for a database that does not answer."""

KEYS_MAX: Final = 10_000

API_KEY: Final = re.compile(r"rwk_[A-Za-z0-9_-]{43}")
"""An API key: 32 random bytes in base64url."""

_IPV6_NETWORK_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class _CachedKey:
    key: ApiKey
    read_s: float


class KeyCache:
    """Reads API keys by token, and caches valid keys by the token's digest.

    `read_key` blocks and gets only tokens that match `pattern`. Unknown tokens are not cached: they
    would evict valid ones. Concurrent lookups of a token share one call.
    """

    def __init__(
        self,
        read_key: Callable[[str], ApiKey | None],
        pattern: re.Pattern[str] = API_KEY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_key = read_key
        self._pattern = pattern
        self._clock = clock
        self._keys: OrderedDict[bytes, _CachedKey] = OrderedDict()
        self._lookups: SingleFlight[bytes, ApiKey | None] = SingleFlight()

    def has_cached(self, token: str) -> bool:
        """Whether `token` was valid when it was last looked up."""
        return _digest(token) in self._keys

    async def find_key(self, token: str) -> ApiKey | None:
        """The key of `token`; None if the token is unknown or revoked.

        Raises:
            StoreUnavailable: the database does not answer, and the key is not cached.
        """
        if not self._pattern.fullmatch(token):
            return None
        digest = _digest(token)
        cached = self._keys.get(digest)
        age_s = STALE_S if cached is None else self._clock() - cached.read_s
        if cached is None or age_s >= STALE_S:
            return await self._look_up(digest, token)
        if age_s < FRESH_S:
            return cached.key
        try:
            return await asyncio.wait_for(self._look_up(digest, token), LOOKUP_TIMEOUT_S)
        except (StoreUnavailable, TimeoutError):
            return cached.key

    def evict(self, token: str) -> None:
        """Remove `token`, so that its next use is looked up."""
        self._keys.pop(_digest(token), None)

    def add(self, token: str, key: ApiKey) -> None:
        """Cache the key of a token that was just created."""
        self._add(_digest(token), _CachedKey(key, self._clock()))

    async def _look_up(self, digest: bytes, token: str) -> ApiKey | None:
        read_s = self._clock()
        key = await self._lookups.call(digest, lambda: self._read_key(token))
        self._keys.pop(digest, None)
        if key is not None:
            self._add(digest, _CachedKey(key, read_s))
        return key

    def _add(self, digest: bytes, cached: _CachedKey) -> None:
        while len(self._keys) >= KEYS_MAX:
            self._keys.popitem(last=False)
        self._keys[digest] = cached


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


class Authenticator:
    """Finds the key of a token; limits failures per minute and client network.

    Above the limit only cached tokens are looked up: guessing is bounded, and a client behind the
    same address cannot lock out a known one.
    """

    def __init__(self, keys: KeyCache, failures_per_minute: int) -> None:
        self.keys = keys
        self._limit = failures_per_minute
        self._failures = QuotaCounter()

    async def authenticate(self, token: str | None, client: str) -> ApiKey | None:
        """The key of `token`; None if the token is missing or unknown. `client` is an IP address.

        Raises:
            RateLimited: the client's network has too many failures.
            StoreUnavailable: the database does not answer, and the key is not cached.
        """
        network = network_of(client)
        quota = self._failures.quota_of(network, self._limit, time.monotonic())
        if quota.remaining == 0 and not (token is not None and self.keys.has_cached(token)):
            raise quota.refusal()
        key = None if token is None else await self.keys.find_key(token)
        if key is None:
            self._failures.count_request(network, self._limit, time.monotonic())
        return key


@lru_cache(CALLERS_MAX)
def network_of(client: str) -> str:
    """The address of an IPv4 client; of an IPv6 client its network, in which it owns all."""
    try:
        address = ip_address(client)
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(ip_network((address, _IPV6_NETWORK_BITS), strict=False))


def select_account(caller: ApiKey, account_id: str | None) -> str | None:
    """The account that a request is limited to; None for all accounts.

    Raises:
        AccountNotAllowed: a developer named an account other than their own.
    """
    if account_id is None or caller.account_filter is None:
        return account_id or caller.account_filter
    if account_id != caller.account_filter:
        raise AccountNotAllowed(
            fields=[FieldError("accountId", account_id, "the account of the key")]
        )
    return account_id
