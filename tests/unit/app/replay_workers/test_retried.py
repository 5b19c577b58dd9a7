"""What a retry sends, and a retry of a retry that was stopped."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.model import Counts, Failure, NewReplay, NewWebhook, OffsetRange, Window
from app.replay_workers.retried import PARENTS_MAX, TooManyRetries, read_retried
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated

WINDOW = Window(1_000, 2_000)
OFFSETS = OffsetRange(3, 100, 200)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    with closing(Store.open(url)) as store:
        yield store


@pytest.fixture
def webhook_id(store: Store) -> str:
    return store.create_webhook(NewWebhook("https://example.com/", "", new_secret())).id


def ended(
    store: Store,
    webhook_id: str,
    checkpoint: int | None,
    *failed: int,
    end: str = "fail",
    retry_of: str | None = None,
) -> str:
    """Create a replay that ends at a checkpoint; without one, before its offsets are known."""
    replay, _ = store.create_replay(NewReplay(webhook_id, WINDOW, retry_of=retry_of))
    claim = store.claim("one", 60)
    assert claim is not None
    if checkpoint is not None:
        failures = [Failure(offset, "evt", 6, 500, "no") for offset in failed]
        assert store.begin_delivery(claim.lease, OFFSETS)
        counts = Counts(0, 0, len(failures))
        assert store.checkpoint(claim.lease, checkpoint, counts, failures)
    if end == "fail":
        assert store.fail(claim.lease, "it is down")
    elif end == "complete":
        assert store.complete(claim.lease)
    else:
        store.cancel_replay(replay.id)
    return replay.id


def retried(store: Store, parent_id: str) -> list[int]:
    found = read_retried(store, parent_id, OFFSETS)
    return [offset for offset in range(90, 210) if offset in found]


def test_a_completed_replay_leaves_its_failures(store: Store, webhook_id: str) -> None:
    parent = ended(store, webhook_id, 200, 120, 150, end="complete")
    assert retried(store, parent) == [120, 150]


@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_a_stopped_replay_leaves_also_what_it_did_not_reach(
    store: Store, webhook_id: str, end: str
) -> None:
    parent = ended(store, webhook_id, 170, 120, 150, end=end)
    assert retried(store, parent) == [120, 150, *range(170, 200)]


def test_a_stopped_retry_leaves_what_it_would_have_sent(store: Store, webhook_id: str) -> None:
    first = ended(store, webhook_id, 190, 120, 150, 160)
    second = ended(store, webhook_id, 155, 150, retry_of=first)
    assert retried(store, second) == [150, 160, *range(190, 200)]
    never_begun = ended(store, webhook_id, None, retry_of=second, end="cancel")
    assert retried(store, never_begun) == retried(store, second)


def test_a_chain_of_unfinished_retries_is_limited(store: Store, webhook_id: str) -> None:
    parent = ended(store, webhook_id, 150)
    for _ in range(PARENTS_MAX - 1):
        parent = ended(store, webhook_id, None, retry_of=parent)
    assert len(retried(store, parent)) == 50
    with pytest.raises(TooManyRetries):
        retried(store, ended(store, webhook_id, None, retry_of=parent))
