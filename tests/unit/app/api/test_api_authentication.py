import asyncio
from pathlib import Path

import pytest

from app.services.authentication import FRESH_S, STALE_S, KeyCache
from app.store import Store, StoreUnavailable
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keyring(store: Store, clock: Clock) -> KeyCache:
    return KeyCache(store.find_key, clock=clock)


def take_database_away(store: Store, folder: Path) -> None:
    store.close()
    (folder / "rewind.db").rename(folder / "elsewhere.db")
    (folder / "rewind.db").mkdir()


async def test_a_key_that_is_revoked_opens_nothing_after_two_seconds(
    keyring: KeyCache, store: Store, clock: Clock, developer: Issued
) -> None:
    key, token = developer
    assert await keyring.find_key(token) == key
    store.revoke_key(key.id)
    clock.now_s += FRESH_S - 0.1
    assert await keyring.find_key(token) == key, "known of late, so nobody is asked"
    clock.now_s += 0.1
    assert await keyring.find_key(token) is None
    assert not keyring.has_cached(token)
    assert FRESH_S <= 2


async def test_a_fresh_key_costs_no_question(
    keyring: KeyCache, store: Store, tmp_path: Path, developer: Issued
) -> None:
    key, token = developer
    assert await keyring.find_key(token) == key
    take_database_away(store, tmp_path)
    assert await keyring.find_key(token) == key


async def test_a_key_that_was_good_outlasts_the_database_for_a_while(
    keyring: KeyCache,
    store: Store,
    clock: Clock,
    tmp_path: Path,
    developer: Issued,
    operator: Issued,
) -> None:
    key, token = developer
    assert await keyring.find_key(token) == key
    take_database_away(store, tmp_path)
    clock.now_s += STALE_S - 1
    assert await keyring.find_key(token) == key
    with pytest.raises(StoreUnavailable):
        await keyring.find_key(operator[1])
    clock.now_s += 1
    with pytest.raises(StoreUnavailable):
        await keyring.find_key(token)


@pytest.mark.parametrize("token", ["", "rwk_", "rwk_" + "x" * 42, "rwk_" + "x" * 44, "x" * 47])
async def test_what_is_no_key_is_not_looked_up(
    keyring: KeyCache, store: Store, tmp_path: Path, token: str
) -> None:
    take_database_away(store, tmp_path)
    assert await keyring.find_key(token) is None


async def test_a_text_that_no_key_has_is_no_key(keyring: KeyCache) -> None:
    token = "rwk_" + "x" * 43
    assert await keyring.find_key(token) is None
    assert not keyring.has_cached(token)


async def test_no_more_keys_are_kept_than_allowed(
    store: Store,
    clock: Clock,
    operator: Issued,
    developer: Issued,
    other_developer: Issued,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.services.authentication.KEYS_MAX", 2)
    keyring = KeyCache(store.find_key, clock=clock)
    for _, token in (operator, developer, other_developer):
        await keyring.find_key(token)
    seen = [keyring.has_cached(token) for _, token in (operator, developer, other_developer)]
    assert seen == [False, True, True]


async def test_one_that_leaves_takes_the_answer_from_nobody(
    keyring: KeyCache, developer: Issued
) -> None:
    key, token = developer
    leaving = asyncio.create_task(keyring.find_key(token))
    staying = asyncio.create_task(keyring.find_key(token))
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == key
