"""Readers of the routing table, which poll its changes."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

import pytest
from sqlalchemy import text

from app.domain.model import NewWebhook, Webhook
from app.domain.routing_changes import RoutingChanges
from app.domain.rules import Rule
from app.store import RuleNotFound, Store, TooManyRules, WebhookNotFound, rules
from app.store.engine import open_engine
from app.webhooks.signing import new_secret

WRITERS = 4
NAMES = ("a", "b", "c", "d")


class Table:
    """A copy of the routing table that is updated by its changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.revision = 0
        self.webhooks: dict[str, Webhook] = {}
        self.rules: dict[tuple[str, str], Rule] = {}

    def refresh(self) -> RoutingChanges:
        changes = self._store.routing_changes(self.revision)
        if changes.revision < self.revision:
            self.webhooks, self.rules = {}, {}
        self.revision = changes.revision
        self.webhooks |= {webhook.id: webhook for webhook in changes.webhooks}
        self.rules |= {(rule.webhook_id, rule.name): rule for rule in changes.rules}
        for webhook_id in changes.gone_webhooks:
            self.webhooks.pop(webhook_id, None)
        for key in changes.gone_rules:
            self.rules.pop(key, None)
        return changes

    def content(self) -> tuple[dict[str, Webhook], dict[tuple[str, str], Rule]]:
        return self.webhooks, self.rules


@pytest.fixture
def table(store: Store) -> Table:
    return Table(store)


def new_webhook(store: Store) -> Webhook:
    return store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))


def test_a_new_reader_gets_the_whole_table(store: Store, table: Table) -> None:
    kept, gone = new_webhook(store), new_webhook(store)
    store.put_rule(Rule(kept.id, "kept", ("*",)))
    store.put_rule(Rule(kept.id, "gone", ("*",)))
    store.put_rule(Rule(gone.id, "default", ("*",)))
    store.delete_rule(kept.id, "gone")
    store.delete_webhook(gone.id)
    changes = table.refresh()
    assert changes.webhooks == (kept,)
    assert changes.rules == (Rule(kept.id, "kept", ("*",)),)
    # No reader knows them yet, so their deletion is not reported.
    assert (changes.gone_webhooks, changes.gone_rules) == ((), ())


def test_a_reader_gets_the_changes_since_its_revision(store: Store, table: Table) -> None:
    one, two = new_webhook(store), new_webhook(store)
    rule = Rule(one.id, "default", ("a.*",))
    store.put_rule(rule)
    first = table.refresh().revision
    disabled = store.disable_webhook(two.id, "answered 410")
    changes = table.refresh()
    assert (changes.webhooks, changes.rules) == ((disabled,), ())
    assert changes.revision > first
    newer = Rule(one.id, "default", ("b.*",))
    store.put_rule(newer)
    assert table.refresh().rules == (newer,)
    store.delete_rule(one.id, "default")
    assert table.refresh().gone_rules == ((one.id, "default"),)
    assert table.content() == ({one.id: one, two.id: disabled}, {})


def test_every_change_of_a_webhook_is_returned(store: Store, table: Table) -> None:
    webhook = new_webhook(store)
    changes: list[Callable[[], Webhook]] = [
        lambda: webhook,
        lambda: store.record_failed_verification(webhook.id, webhook.url, "answered 500"),
        lambda: store.enable_webhook(webhook.id, webhook.url),
        lambda: store.update_webhook(webhook.id, description="new"),
        lambda: store.rotate_secret(webhook.id, new_secret(), 60_000),
        lambda: store.disable_webhook(webhook.id, "answered 410"),
        lambda: store.update_webhook(webhook.id, url="https://example.com/new"),
    ]
    for change in changes:
        assert (change(),) == table.refresh().webhooks


def test_the_deletion_of_a_webhook_deletes_its_rules(store: Store, table: Table) -> None:
    webhook, other = new_webhook(store), new_webhook(store)
    for owner in (webhook, other):
        for name in NAMES:
            store.put_rule(Rule(owner.id, name, ("*",)))
    store.delete_rule(webhook.id, "a")
    table.refresh()
    store.delete_webhook(webhook.id)
    changes = table.refresh()
    assert changes.gone_webhooks == (webhook.id,)
    assert set(changes.gone_rules) == {(webhook.id, name) for name in NAMES[1:]}
    assert set(table.rules) == {(other.id, name) for name in NAMES}


def test_no_changes_are_returned_if_nothing_changed(store: Store, table: Table) -> None:
    new_webhook(store)
    revision = table.refresh().revision
    assert table.refresh() == RoutingChanges(revision)


def test_a_rejected_change_does_not_raise_the_revision(
    store: Store, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES_PER_WEBHOOK_MAX", 1)
    webhook = new_webhook(store)
    store.put_rule(Rule(webhook.id, "a", ("*",)))
    table.refresh()
    with pytest.raises(TooManyRules):
        store.put_rule(Rule(webhook.id, "b", ("*",)))
    with pytest.raises(RuleNotFound):
        store.delete_rule(webhook.id, "b")
    assert table.refresh() == RoutingChanges(table.revision)


def test_a_reader_of_a_restored_database_gets_the_whole_table(
    store: Store, table: Table, database_url: str
) -> None:
    webhook = new_webhook(store)
    for _ in range(5):
        store.put_rule(Rule(webhook.id, "default", ("*",)))
    table.refresh()
    engine = open_engine(database_url)
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(text("UPDATE revisions SET value = 2"))
        connection.execute(text("UPDATE webhooks SET revision = 2"))
        connection.execute(text("DELETE FROM rules"))
    engine.dispose()
    table.refresh()
    assert (table.revision, table.content()) == (2, ({webhook.id: webhook}, {}))


def age_deletions_by_a_day(database_url: str) -> None:
    engine = open_engine(database_url)
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(text("UPDATE rules SET deleted_ms = deleted_ms - 86400001"))
    engine.dispose()


def row_count(database_url: str) -> int:
    engine = open_engine(database_url)
    with engine.connect() as connection:
        count: int = connection.execute(text("SELECT count(*) FROM rules")).scalar_one()
    engine.dispose()
    return count


def test_rows_of_rules_are_purged_a_day_after_their_deletion(
    store: Store, table: Table, database_url: str
) -> None:
    webhook, gone = new_webhook(store), new_webhook(store)
    for owner in (webhook, gone):
        for name in NAMES:
            store.put_rule(Rule(owner.id, name, ("*",)))
    store.delete_rule(webhook.id, "a")
    store.delete_webhook(gone.id)
    assert row_count(database_url) == 8
    table.refresh()
    age_deletions_by_a_day(database_url)
    store.delete_rule(webhook.id, "b")
    # What was just deleted is kept for those who have not heard of it.
    assert row_count(database_url) == 3
    assert table.refresh().gone_rules == ((webhook.id, "b"),)
    assert store.put_rule(Rule(webhook.id, "a", ("*",)))[1]
    table.refresh()
    assert set(table.rules) == {(webhook.id, name) for name in "acd"}


def test_a_recreated_rule_is_not_purged(store: Store, table: Table, database_url: str) -> None:
    webhook = new_webhook(store)
    for name in ("a", "b", "c"):
        store.put_rule(Rule(webhook.id, name, ("*",)))
    store.delete_rule(webhook.id, "a")
    store.put_rule(Rule(webhook.id, "a", ("again",)))
    age_deletions_by_a_day(database_url)
    store.delete_rule(webhook.id, "b")
    table.refresh()
    assert set(table.rules) == {(webhook.id, "a"), (webhook.id, "c")}


def test_a_reader_behind_a_purge_gets_the_whole_table(
    store: Store, table: Table, database_url: str
) -> None:
    webhook = new_webhook(store)
    for name in NAMES:
        store.put_rule(Rule(webhook.id, name, ("*",)))
    table.refresh()
    store.delete_rule(webhook.id, "a")
    age_deletions_by_a_day(database_url)
    store.delete_rule(webhook.id, "b")
    for _ in range(2):
        table.refresh()
    fresh = Table(store)
    fresh.refresh()
    assert (table.revision, table.content()) == (fresh.revision, fresh.content())
    assert set(table.rules) == {(webhook.id, "c"), (webhook.id, "d")}
    assert table.refresh() == RoutingChanges(table.revision)


def test_each_change_has_the_next_revision(store: Store) -> None:
    webhooks = [new_webhook(store) for _ in range(WRITERS)]
    before = store.routing_changes(0).revision

    def write(webhook: Webhook) -> None:
        for number in range(25):
            store.put_rule(Rule(webhook.id, f"rule-{number}", ("*",)))

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(write, webhooks))
    assert store.routing_changes(0).revision == before + WRITERS * 25
    for revision in range(before, before + WRITERS * 25):
        after = store.routing_changes(revision)
        assert len(after.rules) == before + WRITERS * 25 - revision


class Writer:
    """Makes random changes: mostly of rules, and sometimes it deletes a webhook."""

    def __init__(self, store: Store, webhooks: list[Webhook], number: int) -> None:
        self._store = store
        self._webhooks = webhooks
        self._chance = random.Random(number)

    def write(self) -> None:
        """Make sixty changes; ignores what another writer has deleted."""
        edits = (self._put, self._delete, self._disable, self._replace)
        for edit in self._chance.choices(edits, weights=(10, 5, 4, 1), k=60):
            with suppress(RuleNotFound, WebhookNotFound):
                edit(self._chance.randrange(len(self._webhooks)))

    def _put(self, place: int) -> None:
        glob = str(self._chance.random())
        self._store.put_rule(Rule(self._webhooks[place].id, self._name(), (glob,)))

    def _delete(self, place: int) -> None:
        self._store.delete_rule(self._webhooks[place].id, self._name())

    def _disable(self, place: int) -> None:
        self._store.disable_webhook(self._webhooks[place].id, str(self._chance.random()))

    def _replace(self, place: int) -> None:
        self._store.delete_webhook(self._webhooks[place].id)
        self._webhooks[place] = new_webhook(self._store)

    def _name(self) -> str:
        return self._chance.choice(NAMES)


@pytest.mark.long
def test_a_reader_with_four_concurrent_writers_has_the_final_table(store: Store) -> None:
    webhooks = [new_webhook(store) for _ in range(WRITERS)]
    is_over = threading.Event()

    def read() -> Table:
        table = Table(store)
        while not is_over.is_set():
            table.refresh()
        return table

    with ThreadPoolExecutor(WRITERS + 2) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        writers = [threads.submit(Writer(store, webhooks, seed).write) for seed in range(WRITERS)]
        wait(writers)
        is_over.set()
    for writer in writers:
        writer.result()
    fresh = Table(store)
    fresh.refresh()
    for reader in readers:
        table = reader.result()
        table.refresh()
        assert table.content() == fresh.content()
    assert set(fresh.webhooks) == {webhook.id for webhook in webhooks}
