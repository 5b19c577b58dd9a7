"""Claims by account: in turns, and only so many replays of one account at a time."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import Claim, NewReplay, NewWebhook, OffsetRange, Replay, Window
from app.domain.states import ReplayState
from app.store import Store, claim_queue
from app.store.store import CLAIMERS_MAX
from app.store.tables import accounts
from app.webhooks.signing import new_secret

WINDOW = Window(1_000, 2_000)
NO_TIME = 0.0
"""A lease that expires at once, by the database's clock."""


def new_account(store: Store, name: str) -> str:
    account_id = f"acc_{name}"
    row = insert(accounts).values(id=account_id, name=name, created_ms=1)
    store.database.write(lambda db: db.execute(row))
    return account_id


def new_replay(store: Store, account_id: str) -> Replay:
    new = NewWebhook("https://example.com/", "", new_secret(), account_id)
    return store.create_replay(NewReplay(store.create_webhook(new).id, WINDOW))[0]


def claim_in_turns(
    store: Store, count: int, *, running_max: int | None = None, lease_s: float = 3_600
) -> list[str]:
    """The accounts of the next claims of one worker."""
    turns: list[str] = []
    while len(turns) < count:
        after = turns[-1] if turns else ""
        claim = store.claim("worker", lease_s, after=after, running_max=running_max)
        if claim is None:
            break
        turns.append(claim.replay.account_id)
    return turns


def test_accounts_are_claimed_in_turns(store: Store) -> None:
    many, other, last = sorted(new_account(store, name) for name in ("one", "two", "three"))
    for account in (many, many, many, many, last, other, other):
        new_replay(store, account)
    assert claim_in_turns(store, 9) == [many, other, last, many, other, many, many]


def test_a_claim_after_the_last_account_starts_again_at_the_first(store: Store) -> None:
    waiting = new_replay(store, DEFAULT_ACCOUNT)
    for after in ("", "a", "~", DEFAULT_ACCOUNT):
        claim = store.claim("worker", NO_TIME, after=after)
        assert claim is not None
        assert claim.replay.id == waiting.id


@pytest.mark.parametrize("running_max", [2, CLAIMERS_MAX + 3])
def test_an_account_at_its_limit_is_skipped(store: Store, running_max: int) -> None:
    many, other = sorted(new_account(store, name) for name in ("one", "two"))
    for _ in range(running_max + 2):
        new_replay(store, many)
    new_replay(store, other)
    claimed = claim_in_turns(store, running_max + 3, running_max=running_max)
    assert Counter(claimed) == {many: running_max, other: 1}
    # One that ends makes room for the next.
    held = next(each for each in store.replays().items if each.worker and each.account_id == many)
    store.cancel_replay(held.id)
    assert claim_in_turns(store, 2, running_max=running_max) == [many]


def test_replays_of_dead_workers_do_not_count(store: Store) -> None:
    account = new_account(store, "one")
    for _ in range(2):
        new_replay(store, account)
    assert claim_in_turns(store, 2, lease_s=NO_TIME) == [account] * 2
    claim = store.claim("successor", 3_600, running_max=1)
    assert claim is not None
    assert claim.is_takeover
    assert store.claim("another", 3_600, running_max=1) is None


def test_a_paused_replay_takes_no_turn(store: Store) -> None:
    first, second = sorted(new_account(store, name) for name in ("one", "two"))
    store.pause_replay(new_replay(store, first).id)
    new_replay(store, second)
    assert claim_in_turns(store, 2) == [second]


def test_workers_that_claim_at_once_keep_the_limit(store: Store) -> None:
    account = new_account(store, "one")
    for _ in range(12):
        new_replay(store, account)
    start = threading.Barrier(8)

    def claim(number: int) -> list[Claim]:
        start.wait()
        claims = [store.claim(f"worker {number}", 3_600, running_max=5) for _ in range(4)]
        return [each for each in claims if each is not None]

    with ThreadPoolExecutor(8) as threads:
        claims = [each for claimed in threads.map(claim, range(8)) for each in claimed]
    assert 1 <= len(claims) <= 5
    assert len({each.replay.id for each in claims}) == len(claims)
    assert len(claims) + len(claim_in_turns(store, 9, running_max=5)) == 5


def test_running_replays_are_counted_for_the_account_whose_turn_it_is(store: Store) -> None:
    first, second = sorted(new_account(store, name) for name in ("one", "two"))
    for account in (first, first, second):
        new_replay(store, account)
    claim = store.claim("worker", 3_600)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(0, 0, 9))
    for after, expected in (("", (first, 1)), (first, (second, 0)), (second, (first, 1))):
        waiting = store.database.read(claim_queue.find_waiting_account, "", after)
        assert waiting is not None
        assert (waiting.queue.account_id, waiting.running) == expected


def test_a_replay_that_gives_way_goes_behind_the_others_of_its_account(store: Store) -> None:
    account = new_account(store, "one")
    first, second = new_replay(store, account), new_replay(store, account)
    claim = store.claim("worker", 3_600)
    assert claim is not None
    assert claim.replay.id == min(first, second, key=lambda each: (each.created_ms, each.id)).id
    assert store.yield_turn(claim.lease)
    given_back = store.replay(claim.replay.id)
    assert (given_back.state, given_back.waiting_for) == (ReplayState.OPEN, None)
    assert store.moves(given_back.id)[-1].reason == "other replays have their turn"
    following = store.claim("worker", 3_600)
    assert following is not None
    assert following.replay.id != given_back.id
    assert not store.yield_turn(claim.lease)


def test_the_next_account_is_that_of_the_next_claim(store: Store) -> None:
    first, second = sorted(new_account(store, name) for name in ("one", "two"))
    assert store.next_account() is None
    for account in (first, first, second):
        new_replay(store, account)
    assert (store.next_account(), store.next_account(after=first)) == (first, second)
    assert claim_in_turns(store, 1) == [first]
    assert store.next_account(running_max=1) == second
