"""The table of grants."""

from typing import Any

import pytest

from app.domain import grants as limits
from app.domain.accounts import DEFAULT_ACCOUNT, Account
from app.domain.grants import EVERYTHING, Grant
from app.domain.rules import Rule, conditions_of
from app.store import AccountNotFound, GrantNotFound, Store, TooManyGrants
from app.store import grants as grant_table


@pytest.fixture
def account(store: Store) -> Account:
    return store.create_account("acme")


def grant_of(account: Account, name: str = "one", *event_types: str, **where: Any) -> Grant:
    return Grant(account.id, name, event_types or ("*",), conditions_of(where))


def test_the_first_account_has_a_grant_for_everything_and_a_new_one_has_none(
    store: Store, account: Account
) -> None:
    assert store.grants(DEFAULT_ACCOUNT).items == (Grant(DEFAULT_ACCOUNT, EVERYTHING, ("*",)),)
    assert store.grants(account.id).items == ()
    assert store.routing_changes(0).grants == store.grants(DEFAULT_ACCOUNT).items


def test_a_grant_is_created_replaced_and_deleted(store: Store, account: Account) -> None:
    grant = grant_of(account, "one", "follow.*", userId=42, text="é", live=True)
    assert store.put_grant(grant) == (grant, True)
    assert store.grant(account.id, "one") == grant
    newer = grant_of(account, "one", "dm.*")
    assert store.put_grant(newer) == (newer, False)
    store.delete_grant(account.id, "one")
    with pytest.raises(GrantNotFound, match="has no grant 'one'"):
        store.grant(account.id, "one")
    with pytest.raises(GrantNotFound):
        store.delete_grant(account.id, "one")
    assert store.put_grant(grant) == (grant, True)


def test_a_grant_belongs_to_an_account_that_exists(store: Store, account: Account) -> None:
    for account_id in ("acc_none", account.id + " ", account.id.upper()):
        with pytest.raises(AccountNotFound):
            store.put_grant(Grant(account_id, "one", ("*",)))
        with pytest.raises(AccountNotFound):
            store.grants(account_id)
        with pytest.raises(AccountNotFound):
            store.grant(account_id, "one")
        with pytest.raises(AccountNotFound):
            store.delete_grant(account_id, "one")


def test_grants_are_listed_by_name_in_pages(store: Store, account: Account) -> None:
    for name in ("c", "a", "b"):
        store.put_grant(grant_of(account, name))
    first = store.grants(account.id, limit=2)
    assert [grant.name for grant in first.items] == ["a", "b"]
    rest = store.grants(account.id, first.next_cursor)
    assert ([grant.name for grant in rest.items], rest.next_cursor) == (["c"], None)


def test_the_number_and_the_kinds_of_grants_are_limited(
    store: Store, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grant_table, "GRANTS_PER_ACCOUNT_MAX", 3)
    monkeypatch.setattr(grant_table, "GRANT_KINDS_PER_ACCOUNT_MAX", 2)
    for number in range(2):
        store.put_grant(grant_of(account, str(number), "a", userId=number))
    store.put_grant(grant_of(account, "2", "b"))
    with pytest.raises(TooManyGrants, match="has 3 grants"):
        store.put_grant(grant_of(account, "3", "b"))
    store.delete_grant(account.id, "1")
    with pytest.raises(TooManyGrants, match="grants of 2 kinds"):
        store.put_grant(grant_of(account, "3", "c"))
    # Of the same kind, or instead of the only one of its kind.
    store.put_grant(grant_of(account, "3", "a", userId=7))
    store.put_grant(grant_of(account, "2", "c"))
    assert limits.GRANTS_PER_ACCOUNT_MAX == 10_000


def test_readers_of_the_routing_table_learn_of_every_change(store: Store, account: Account) -> None:
    before = store.routing_changes(0).revision
    grant = store.put_grant(grant_of(account))[0]
    changes = store.routing_changes(before)
    assert (changes.grants, changes.gone_grants) == ((grant,), ())
    store.delete_grant(account.id, grant.name)
    gone = store.routing_changes(changes.revision)
    assert (gone.grants, gone.gone_grants) == ((), ((account.id, grant.name),))
    assert grant not in store.routing_changes(0).grants


@pytest.mark.parametrize(
    ("event_types", "where", "is_covered"),
    [
        (("follow.*",), {}, True),
        (("follow.created",), {"userId": 42, "other": 1}, True),
        (("follow.created",), {"userId": 42.0}, True),
        (("follow.created",), {"userId": "42"}, False),
        (("follow.created",), {"userId": 43}, False),
        (("*",), {"other": 1}, True),
        (("dm.sent", "f*"), {}, True),
        (("tweet.*",), {}, False),
        (("dm.sent",), {"userId": 44}, False),
        (("dm.sent",), {"userId": 42}, True),
        (("dm.sent",), {"userId": 42, "live": True}, True),
        (("dm.sent",), {"userId": 42, "live": 1}, False),
        (("dm.sent",), {"live": False}, False),
        (("dm.sent",), {"userId": [41, 99]}, True),
        (("dm.sent",), {"userId": [99]}, False),
        (("dm.sent",), {"userId": 42, "live": [False, None]}, False),
        (("dm.sent",), {"userId": [{"numeric": [">", 41]}], "live": True}, True),
        (("dm.sent",), {"userId": [{"exists": False}]}, False),
        (("dm.sent",), {"other": ["a"]}, True),
        (("tag.*",), {"tag": "vip"}, True),
        (("tag.*",), {"tag": "lord"}, False),
        # An array can have values for both patterns.
        (("tag.*",), {"tag": ["lord"]}, True),
        (("tag.*",), {"tag": [{"exists": False}]}, False),
    ],
)
def test_a_rule_is_covered_if_it_can_match_a_granted_event(
    store: Store,
    account: Account,
    event_types: tuple[str, ...],
    where: dict[str, Any],
    is_covered: bool,
) -> None:
    for number in (41, 42):
        store.put_grant(grant_of(account, f"follow-{number}", "follow.*", userId=number))
        store.put_grant(grant_of(account, f"dm-{number}", "dm.*", userId=number, live=True))
    store.put_grant(grant_of(account, "gone", "tweet.*"))
    store.delete_grant(account.id, "gone")
    store.put_grant(grant_of(account, "tags", "tag.*", tag=[{"prefix": "v"}]))
    rule = Rule("wh_1", "default", event_types, conditions_of(where))
    other = Rule("wh_1", "other", ("none",))
    wanted = {("wh_1", "default")} if is_covered else set()
    assert store.find_covered_rules(account.id, [rule, other]) == wanted


def test_the_grant_for_everything_covers_every_rule(store: Store) -> None:
    rules = [Rule("wh_1", "a", ("x",), (("y", 1),)), Rule("wh_2", "b", ("*",))]
    covered = store.find_covered_rules(DEFAULT_ACCOUNT, rules)
    assert covered == {("wh_1", "a"), ("wh_2", "b")}
