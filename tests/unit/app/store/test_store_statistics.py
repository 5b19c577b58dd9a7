from sqlalchemy import update

from app.domain.model import NewReplay, NewWebhook, OffsetRange, Replay, Window
from app.domain.states import ReplayState
from app.store import Store
from app.store.engine import Database
from app.store.tables import replays
from app.webhooks.signing import new_secret

HOUR_S = 3_600
WINDOW = Window(1_000, 2_000)


def new_replay(store: Store) -> Replay:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    return store.create_replay(NewReplay(webhook.id, WINDOW))[0]


def age(database_url: str, replay: Replay, **earlier_s: int) -> None:
    """Make times of the replay older by so many seconds."""
    database = Database(database_url)
    values = {name: replays.c[name] - seconds * 1_000 for name, seconds in earlier_s.items()}
    statement = update(replays).where(replays.c.id == replay.id).values(values)
    database.write(lambda db: db.execute(statement))
    database.close()


def test_an_empty_store_has_no_replays(store: Store) -> None:
    statistics = store.job_statistics()
    assert statistics.by_state == dict.fromkeys(ReplayState, 0)
    assert (statistics.oldest_open_s, statistics.late_heartbeats) == ({"": 0}, {"": 0})


def test_replays_are_counted_by_state(store: Store) -> None:
    waiting = [new_replay(store) for _ in range(3)]
    store.pause_replay(waiting[0].id)
    store.cancel_replay(waiting[1].id)
    claim = store.claim("one", HOUR_S)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(0, 0, 1))
    new_replay(store)
    counted = {state: count for state, count in store.job_statistics().by_state.items() if count}
    assert counted == {
        ReplayState.PAUSED: 1,
        ReplayState.CANCELLED: 1,
        ReplayState.ONGOING: 1,
        ReplayState.OPEN: 1,
    }


def test_the_oldest_open_replay_is_the_longest_waiting(store: Store, database_url: str) -> None:
    first, second = new_replay(store), new_replay(store)
    age(database_url, first, created_ms=60, claimable_ms=60)
    age(database_url, second, created_ms=30, claimable_ms=30)
    assert 60 <= store.job_statistics().oldest_open_s[""] < HOUR_S
    claim = store.claim("one", HOUR_S)
    assert claim is not None
    assert claim.replay.id == first.id
    assert 30 <= store.job_statistics().oldest_open_s[""] < 60


def test_a_resumed_replay_waits_since_then_a_postponed_one_since_creation(
    store: Store, database_url: str
) -> None:
    replay = new_replay(store)
    age(database_url, replay, created_ms=2 * HOUR_S, claimable_ms=2 * HOUR_S)
    store.pause_replay(replay.id)
    assert store.job_statistics().oldest_open_s[""] == 0
    store.resume_replay(replay.id)
    assert store.job_statistics().oldest_open_s[""] < HOUR_S
    claim = store.claim("one", HOUR_S)
    assert claim is not None
    assert store.postpone(claim.lease, "the log does not answer", 60)
    assert store.job_statistics().oldest_open_s[""] >= 2 * HOUR_S


def test_a_worker_is_late_until_its_next_heartbeat(store: Store) -> None:
    new_replay(store)
    claim = store.claim("one", 0)
    assert claim is not None
    assert store.job_statistics().late_heartbeats[""] == 1
    assert store.heartbeat(claim.lease, HOUR_S)
    assert store.job_statistics().late_heartbeats[""] == 0
