"""Tallies of deliveries."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import func, select, update

from app.domain.missed import MissedHour
from app.domain.model import NewReplay, NewWebhook, OffsetRange, Replay, Webhook, Window
from app.domain.options import ReplayOptions
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.store import Store, WebhookNotFound
from app.store.engine import Database
from app.store.tables import delivery_tallies, replays
from app.store.tallies import DELETED_PER_CALL
from app.webhooks.signing import new_secret

HOUR_MS = 3_600_000
START_MS = 400_000 * HOUR_MS
MIDDLE_MS = START_MS + HOUR_MS // 2
ALL = ReplayOptions()
TOOK = (1, 2, 3, 4, 5, 6, 7, 8)


def counted(webhook: Webhook, tally: DeliveryTally, span: Span = Span.SETTLED) -> CountedTally:
    return CountedTally(webhook.id, span, tally)


def other_webhook(store: Store) -> Webhook:
    return store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))


def row_count(database_url: str) -> int | None:
    database = Database(database_url)
    count = database.read(lambda db: db.scalar(select(func.count()).select_from(delivery_tallies)))
    database.close()
    return count


def test_tallies_are_added_up(store: Store, webhook: Webhook) -> None:
    one = DeliveryTally(START_MS, 1, 2, 3, 4, TOOK, missed_until_ms=70, missed_at_ms=900)
    other = DeliveryTally(START_MS, 10, 20, 30, 40, TOOK, missed_until_ms=80, missed_at_ms=800)
    store.add_tallies([counted(webhook, one)], origin="east")
    assert store.tallies(webhook.id, Span.SETTLED, 0) == (one,)
    store.add_tallies([counted(webhook, other)], origin="east")
    doubled = tuple(2 * count for count in TOOK)
    both = DeliveryTally(START_MS, 11, 22, 33, 44, doubled, missed_until_ms=80, missed_at_ms=900)
    assert store.tallies(webhook.id, Span.SETTLED, 0) == (both,)


def test_reads_return_the_sums_of_all_data_centres(
    store: Store, webhook: Webhook, database_url: str
) -> None:
    for origin, delivered in (("east", 1), ("west", 20)):
        tally = DeliveryTally(START_MS, delivered, missed_at_ms=delivered)
        store.add_tallies([counted(webhook, tally)], origin=origin)
    (tally,) = store.tallies(webhook.id, Span.SETTLED, 0)
    assert (tally.delivered, tally.missed_at_ms) == (21, 20)
    assert row_count(database_url) == 2


def test_tallies_are_listed_in_order_from_a_time(store: Store, webhook: Webhook) -> None:
    other = other_webhook(store)
    starts = [START_MS + n * 300_000 for n in range(4)]
    store.add_tallies(
        [
            *(counted(webhook, DeliveryTally(start, delivered=1)) for start in reversed(starts)),
            *(counted(other, DeliveryTally(start, delivered=5)) for start in starts),
            counted(webhook, DeliveryTally(START_MS, delivered=9), Span.EVENT),
        ],
        origin="east",
    )
    found = store.tallies(webhook.id, Span.SETTLED, starts[1])
    assert [(each.start_ms, each.delivered) for each in found] == [(each, 1) for each in starts[1:]]
    (hour,) = store.tallies(webhook.id, Span.EVENT, START_MS)
    assert hour.delivered == 9


def test_each_of_many_webhooks_has_one_sum(store: Store, webhook: Webhook) -> None:
    other, silent = other_webhook(store), other_webhook(store)
    starts = (START_MS - 1, START_MS, START_MS + 1)
    store.add_tallies(
        [
            counted(each, DeliveryTally(start, 1, 2))
            for start in starts
            for each in (webhook, other)
        ],
        origin="east",
    )
    ids = [webhook.id, silent.id]
    summed = store.sum_tallies(ids, Span.SETTLED, START_MS)
    assert summed == {webhook.id: DeliveryTally(START_MS, 2, 4)}
    assert store.sum_tallies([], Span.SETTLED, START_MS) == {}


def test_tallies_of_another_accounts_webhook_are_not_found(store: Store, webhook: Webhook) -> None:
    store.add_tallies([counted(webhook, DeliveryTally(START_MS, 1))], origin="east")
    mine = webhook.account_id
    assert len(store.tallies(webhook.id, Span.SETTLED, 0, of_account=mine)) == 1
    for webhook_id, account in ((webhook.id, "acc_other"), ("wh_none", None)):
        with pytest.raises(WebhookNotFound):
            store.tallies(webhook_id, Span.SETTLED, 0, of_account=account)
        with pytest.raises(WebhookNotFound):
            store.missed_hours(webhook_id, 0, of_account=account)


def test_concurrent_additions_to_the_same_rows_lose_nothing(store: Store, webhook: Webhook) -> None:
    mine = [counted(webhook, DeliveryTally(START_MS + n, delivered=1)) for n in range(40)]
    with ThreadPoolExecutor(4) as threads:
        jobs = [
            threads.submit(store.add_tallies, some, origin="east")
            for _ in range(5)
            for some in (mine, mine[::-1])
        ]
        for job in jobs:
            job.result()
    assert {each.delivered for each in store.tallies(webhook.id, Span.SETTLED, 0)} == {10}


def test_old_tallies_are_deleted_in_portions(
    store: Store, webhook: Webhook, database_url: str
) -> None:
    old = [DeliveryTally(START_MS - 1 - n) for n in range(DELETED_PER_CALL + 1)]
    store.add_tallies([counted(webhook, each) for each in old], origin="east")
    store.add_tallies([counted(webhook, DeliveryTally(START_MS))], origin="east")
    store.add_tallies([counted(webhook, old[0], Span.EVENT)], origin="east")
    assert store.delete_tallies(Span.SETTLED, START_MS)
    assert row_count(database_url) == 3
    assert not store.delete_tallies(Span.SETTLED, START_MS)
    assert row_count(database_url) == 2
    assert [each.start_ms for each in store.tallies(webhook.id, Span.SETTLED, 0)] == [START_MS]


def miss(store: Store, webhook: Webhook, start_ms: int = START_MS) -> None:
    """Add a missed event in the middle of this hour."""
    tally = DeliveryTally(
        start_ms, delivered=8, failed=1, missed_until_ms=start_ms + HOUR_MS // 2 + 1, missed_at_ms=1
    )
    store.add_tallies([counted(webhook, tally, Span.EVENT)], origin="east")


def replayed(store: Store, webhook: Webhook, options: ReplayOptions = ALL) -> Replay:
    """A completed replay of the hour."""
    window = Window(START_MS, START_MS + HOUR_MS)
    store.create_replay(NewReplay(webhook.id, window, options))
    claim = store.claim("one", 3_600)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(0, 0, 1))
    assert store.complete(claim.lease)
    return claim.replay


def change(database_url: str, replay: Replay, **values: int) -> None:
    database = Database(database_url)
    statement = update(replays).where(replays.c.id == replay.id).values(values)
    database.write(lambda db: db.execute(statement))
    database.close()


def test_missed_hours_have_the_numbers_of_missed_events(store: Store, webhook: Webhook) -> None:
    miss(store, webhook)
    miss(store, webhook, START_MS + HOUR_MS)
    quiet = DeliveryTally(START_MS + 2 * HOUR_MS, delivered=5)
    store.add_tallies([counted(webhook, quiet, Span.EVENT)], origin="east")
    first = MissedHour(START_MS, 1, 0, 0, is_replayed=False)
    second = MissedHour(START_MS + HOUR_MS, 1, 0, 0, is_replayed=False)
    assert store.missed_hours(webhook.id, START_MS) == (first, second)
    # An hour of which the beginning is asked for no more cannot be replayed as a whole.
    assert store.missed_hours(webhook.id, START_MS + 1) == (second,)
    assert store.missed_hours(other_webhook(store).id, START_MS) == ()


def test_a_completed_replay_of_the_hour_is_its_remedy(store: Store, webhook: Webhook) -> None:
    miss(store, webhook)
    replayed(store, webhook)
    (hour,) = store.missed_hours(webhook.id, START_MS)
    assert hour.is_replayed


@pytest.mark.parametrize(
    "options",
    [ReplayOptions(event_types=("a",)), ReplayOptions(target_url="https://example.com/other")],
)
def test_a_replay_with_a_filter_or_another_target_is_no_remedy(
    store: Store, webhook: Webhook, options: ReplayOptions
) -> None:
    miss(store, webhook)
    replayed(store, webhook, options)
    (hour,) = store.missed_hours(webhook.id, START_MS)
    assert not hour.is_replayed
    replayed(store, webhook, ReplayOptions(target_url=webhook.url))
    (hour,) = store.missed_hours(webhook.id, START_MS)
    assert hour.is_replayed


def test_an_incomplete_or_earlier_replay_is_no_remedy(
    store: Store, webhook: Webhook, database_url: str
) -> None:
    miss(store, webhook)
    store.create_replay(NewReplay(webhook.id, Window(START_MS, START_MS + HOUR_MS)))
    claim = store.claim("one", 3_600)
    assert claim is not None
    assert not store.missed_hours(webhook.id, START_MS)[0].is_replayed
    assert store.fail(claim.lease, "the disk is gone")
    assert not store.missed_hours(webhook.id, START_MS)[0].is_replayed
    with_failures, too_early = replayed(store, webhook), replayed(store, webhook)
    change(database_url, with_failures, failed=1)
    change(database_url, too_early, created_ms=1)
    assert not store.missed_hours(webhook.id, START_MS)[0].is_replayed
    change(database_url, with_failures, failed=0)
    assert store.missed_hours(webhook.id, START_MS)[0].is_replayed
