"""Which webhooks an event reaches, by all rules and grants."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.globs import glob_matches
from app.domain.grants import Grant
from app.domain.model import Validation, Webhook, WebhookStatus
from app.domain.routing_changes import RoutingChanges
from app.domain.rules import Rule
from app.live.routing import RoutingTable
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.secret_keys import open_store
from tests.support.function_calls import calls_of

SECRET = new_secret()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that is not connected: the changes of the tables are given."""
    with closing(open_store(f"sqlite:///{tmp_path_factory.mktemp('store')}/unused.db")) as store:
        yield store


def webhook_of(webhook_id: str, account_id: str) -> Webhook:
    return Webhook(
        id=webhook_id,
        account_id=account_id,
        url="https://receiver.example",
        description="",
        validation=Validation.PING,
        status=WebhookStatus.ENABLED,
        status_reason=None,
        secret=SECRET,
        previous_secret=None,
        previous_secret_until_ms=None,
        validated_ms=None,
        failing_since_ms=None,
        created_ms=0,
    )


def with_changes(
    store: Store, changes: RoutingChanges, work: Callable[[RoutingTable], None]
) -> None:
    async def run() -> None:
        table = RoutingTable(store)
        await table._apply(changes)
        work(table)

    asyncio.run(run())


def test_an_event_costs_what_both_rules_and_grants_match(store: Store) -> None:
    accounts = [f"acc_{number}" for number in range(1_000)]
    of_all = tuple(webhook_of(f"wh_{each}", each) for each in accounts)
    event = b'{"data": {"userId": 7}}'
    few_grants = RoutingChanges(
        1,
        of_all,
        rules=tuple(Rule(each.id, "default", ("*",)) for each in of_all),
        grants=tuple(
            Grant(account, "user", ("*",), (("data.userId", number),))
            for number, account in enumerate(accounts)
        ),
    )
    few_rules = RoutingChanges(
        1,
        of_all,
        rules=(Rule("wh_acc_7", "default", ("*",)),),
        grants=tuple(Grant(each, "all", ("*",)) for each in accounts),
    )

    def work(table: RoutingTable) -> None:
        assert table.match("dm.sent", event) == ["wh_acc_7"]
        assert calls_of(lambda: table.match("dm.sent", event)) < 150

    for changes in (few_grants, few_rules):
        with_changes(store, changes, work)


globs = st.lists(st.sampled_from(["*", "a*", "b", "?.b"]), min_size=1, max_size=2).map(tuple)
conditions = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([0, 1]), max_size=2).map(
    lambda where: tuple(where.items())
)
accounts = st.sampled_from(["acc_a", "acc_b", "acc_c"])
webhook_ids = st.sampled_from([f"wh_{number}" for number in range(6)])


def fits(entry: Rule | Grant, event_type: str, event: dict[str, int]) -> bool:
    """The definition of a rule and of a grant."""
    return any(glob_matches(each, event_type) for each in entry.event_types) and all(
        event.get(path) == value for path, value in entry.where
    )


@given(
    st.lists(accounts, min_size=6, max_size=6),
    st.lists(st.builds(Rule, webhook_ids, st.just("default"), globs, conditions)),
    st.lists(st.builds(Grant, accounts, st.sampled_from(["one", "two"]), globs, conditions)),
    st.lists(st.tuples(accounts, st.just("two"))),
)
def test_webhooks_are_found_as_by_checking_every_rule_and_grant(
    store: Store,
    owners: Sequence[str],
    rules: Sequence[Rule],
    grants: Sequence[Grant],
    gone: Sequence[tuple[str, str]],
) -> None:
    webhooks = [webhook_of(f"wh_{number}", owner) for number, owner in enumerate(owners)]
    last_rules = {each.webhook_id: each for each in rules}
    last_grants = {(each.account_id, each.name): each for each in grants}
    changes = RoutingChanges(1, tuple(webhooks), rules=tuple(rules), grants=tuple(grants))

    def expected(event_type: str, event: dict[str, int], only: str | None) -> list[str]:
        return [
            each.id
            for each in webhooks
            if each.id in last_rules and fits(last_rules[each.id], event_type, event)
            if only in (None, each.account_id)
            if only
            or any(
                fits(grant, event_type, event)
                for (owner, _), grant in last_grants.items()
                if owner == each.account_id
            )
        ]

    def work(table: RoutingTable) -> None:
        events = product(("a", "b", "a.b"), ({}, {"x": 1}, {"x": 0, "y": 1}), (None, "acc_a"))
        for event_type, event, only in events:
            found = table.match(event_type, json.dumps(event).encode(), only)
            assert found == expected(event_type, event, only)

    with_changes(store, changes, work)
    for key in gone:
        last_grants.pop(key, None)

    async def remove_grants() -> None:
        table = RoutingTable(store)
        await table._apply(changes)
        await table._apply(RoutingChanges(2, gone_grants=tuple(gone)))
        work(table)

    asyncio.run(remove_grants())
