import asyncio

import pytest

from app.services.authentication import FRESH_S, STALE_S, KeyCache
from app.store import Store, StoreUnavailable
from tests.support.database.migrated import ReusedStore
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(store: Store, clock: Clock) -> KeyCache:
    return KeyCache(store.find_key, clock=clock)


async def test_a_revoked_key_is_rejected_after_two_seconds(
    cache: KeyCache, store: Store, clock: Clock, developer: Issued
) -> None:
    key, token = developer
    assert await cache.find_key(token) == key
    store.revoke_key(key.id)
    clock.now_s += FRESH_S - 0.1
    assert await cache.find_key(token) == key, "cached, without a lookup"
    clock.now_s += 0.1
    assert await cache.find_key(token) is None
    assert not cache.has_cached(token)
    assert FRESH_S <= 2


async def test_a_fresh_key_needs_no_lookup(
    cache: KeyCache, reused_store: ReusedStore, developer: Issued
) -> None:
    key, token = developer
    assert await cache.find_key(token) == key
    reused_store.take_database_away()
    assert await cache.find_key(token) == key


async def test_a_cached_key_works_while_the_database_is_down(
    cache: KeyCache,
    reused_store: ReusedStore,
    clock: Clock,
    developer: Issued,
    operator: Issued,
) -> None:
    key, token = developer
    assert await cache.find_key(token) == key
    reused_store.take_database_away()
    clock.now_s += STALE_S - 1
    assert await cache.find_key(token) == key
    with pytest.raises(StoreUnavailable):
        await cache.find_key(operator[1])
    clock.now_s += 1
    with pytest.raises(StoreUnavailable):
        await cache.find_key(token)


@pytest.mark.parametrize("token", ["", "rwk_", "rwk_" + "x" * 42, "rwk_" + "x" * 44, "x" * 47])
async def test_a_malformed_key_is_not_looked_up(
    cache: KeyCache, reused_store: ReusedStore, token: str
) -> None:
    reused_store.take_database_away()
    assert await cache.find_key(token) is None


async def test_an_unknown_key_is_not_found(cache: KeyCache) -> None:
    token = "rwk_" + "x" * 43
    assert await cache.find_key(token) is None
    assert not cache.has_cached(token)


async def test_the_cache_is_bounded(
    store: Store,
    clock: Clock,
    operator: Issued,
    developer: Issued,
    other_developer: Issued,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.services.authentication.KEYS_MAX", 2)
    cache = KeyCache(store.find_key, clock=clock)
    for _, token in (operator, developer, other_developer):
        await cache.find_key(token)
    seen = [cache.has_cached(token) for _, token in (operator, developer, other_developer)]
    assert seen == [False, True, True]


async def test_a_cancelled_caller_does_not_cancel_the_others(
    cache: KeyCache, developer: Issued
) -> None:
    key, token = developer
    leaving = asyncio.create_task(cache.find_key(token))
    staying = asyncio.create_task(cache.find_key(token))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == key
