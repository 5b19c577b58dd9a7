import json
from typing import Any

import pytest

from app.domain.model import NewWebhook, Webhook
from app.domain.options import EVENT_TYPES_MAX
from app.domain.patterns import PATTERN_BYTES_MAX
from app.domain.rules import CONDITIONS_MAX, Alternatives, Rule, conditions_of
from app.store import (
    InvalidCursor,
    RuleNotFound,
    Store,
    TooManyRules,
    WebhookNotFound,
    rule_kinds,
    rules,
)
from app.webhooks.signing import new_secret


def rule_of(webhook: Webhook, name: str = "default", *event_types: str) -> Rule:
    return Rule(webhook.id, name, event_types or ("*",))


def test_a_rule_is_stored_unchanged(store: Store, webhook: Webhook) -> None:
    where = (("data.ü", "42"), ("data.n", 42), ("x", 4.5), ("y", True), ("z", None), ("big", 2**80))
    rule = Rule(webhook.id, "follows", ("follow.*", "ünfollow.?"), where)
    assert store.put_rule(rule) == (rule, True)
    found = store.rule(webhook.id, "follows")
    assert found == rule
    # Equal to Python, and not as JSON.
    assert [type(value) for _, value in found.where] == [type(value) for _, value in where]


@pytest.mark.parametrize("character", ["\U0001f600", "\0", '"'])
def test_the_largest_rule_can_be_stored(store: Store, webhook: Webhook, character: str) -> None:
    globs = tuple('"' * 253 + f"{number:03}" for number in range(EVENT_TYPES_MAX))
    paths = (character * 255 + str(number) for number in range(CONDITIONS_MAX))
    rule = Rule(webhook.id, "all", globs, tuple((path, character * 1_000) for path in paths))
    store.put_rule(rule)
    assert store.rule(webhook.id, "all") == rule
    pattern = Alternatives(json.dumps(["x" * (PATTERN_BYTES_MAX - 4)]))
    with_pattern = Rule(webhook.id, "all", globs, (*rule.where[1:], ("", pattern)))
    store.put_rule(with_pattern)
    assert store.rule(webhook.id, "all") == with_pattern


def test_a_webhook_with_event_types_gets_its_rule_at_creation(store: Store) -> None:
    new = NewWebhook("https://example.com/hook", "orders", new_secret())
    webhook = store.create_webhook(new, event_types=["order.*", "refund.?"])
    (rule,) = store.rules(webhook.id).items
    assert rule == Rule(webhook.id, "default", ("order.*", "refund.?"))
    changes = store.routing_changes(0)
    assert (changes.webhooks, changes.rules) == ((webhook,), (rule,))


def test_a_rule_of_the_same_name_is_replaced(store: Store, webhook: Webhook) -> None:
    store.put_rule(rule_of(webhook, "default", "a.*"))
    newer = rule_of(webhook, "default", "b.*")
    assert store.put_rule(newer) == (newer, False)
    assert store.rules(webhook.id).items == (newer,)


def test_names_differ_by_case(store: Store, webhook: Webhook) -> None:
    lower, upper = rule_of(webhook, "name"), rule_of(webhook, "NAME")
    assert [store.put_rule(rule)[1] for rule in (lower, upper)] == [True, True]
    assert store.rule(webhook.id, "NAME") == upper


def test_each_webhook_has_its_own_rules(store: Store, webhook: Webhook) -> None:
    other = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    store.put_rule(rule_of(webhook))
    assert store.rules(other.id).items == ()
    with pytest.raises(RuleNotFound, match="has no rule 'default'"):
        store.rule(other.id, "default")


def test_the_name_of_a_deleted_rule_can_be_used_again(store: Store, webhook: Webhook) -> None:
    store.put_rule(rule_of(webhook))
    store.delete_rule(webhook.id, "default")
    for ask in (store.rule, store.delete_rule):
        with pytest.raises(RuleNotFound):
            ask(webhook.id, "default")
    assert store.rules(webhook.id).items == ()
    assert store.put_rule(rule_of(webhook)) == (rule_of(webhook), True)
    assert store.rule(webhook.id, "default") == rule_of(webhook)


def test_an_unknown_rule_is_not_found(store: Store, webhook: Webhook) -> None:
    store.put_rule(rule_of(webhook))
    for name in ("none", "", "ü", "default ", "DEFAULT"):
        for ask in (store.rule, store.delete_rule):
            with pytest.raises(RuleNotFound):
                ask(webhook.id, name)


def test_a_rule_needs_a_webhook(store: Store, webhook: Webhook) -> None:
    store.put_rule(rule_of(webhook))
    store.delete_webhook(webhook.id)
    for webhook_id in (webhook.id, "wh_none"):
        for ask in (
            lambda: store.put_rule(Rule(webhook_id, "default", ("*",))),  # noqa: B023
            lambda: store.rule(webhook_id, "default"),  # noqa: B023
            lambda: store.rules(webhook_id),  # noqa: B023
            lambda: store.delete_rule(webhook_id, "default"),  # noqa: B023
        ):
            with pytest.raises(WebhookNotFound):
                ask()


def test_rules_are_listed_by_name_in_pages(store: Store, webhook: Webhook) -> None:
    names = ["b", "a", "a-1", "a_1", "B", "c.d", "gone"]
    for name in names:
        store.put_rule(rule_of(webhook, name))
    store.delete_rule(webhook.id, "gone")
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor is not None:
        page = store.rules(webhook.id, cursor, limit=2)
        pages.append([rule.name for rule in page.items])
        cursor = page.next_cursor
    assert pages == [["B", "a"], ["a-1", "a_1"], ["b", "c.d"]]
    with pytest.raises(InvalidCursor):
        store.rules(webhook.id, "x")


def test_the_rules_of_a_webhook_are_limited(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RULES_PER_WEBHOOK_MAX", 3)
    for name in ("a", "b", "c"):
        store.put_rule(rule_of(webhook, name))
    with pytest.raises(TooManyRules, match="has 3 rules"):
        store.put_rule(rule_of(webhook, "d"))
    assert not store.put_rule(rule_of(webhook, "a", "new"))[1]
    store.delete_rule(webhook.id, "b")
    assert store.put_rule(rule_of(webhook, "d"))[1]
    other = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    assert store.put_rule(rule_of(other))[1]


def test_the_kinds_of_rules_of_a_webhook_are_limited(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_kinds, "KINDS_PER_WEBHOOK_MAX", 2)

    def put(name: str, globs: tuple[str, ...], *paths: str, value: str = "x") -> bool:
        where = tuple((path, value) for path in paths)
        return store.put_rule(Rule(webhook.id, name, globs, where))[1]

    put("a", ("a.*", "b.*"), "data.user", "data.team")
    put("b", ("a.*",))
    # Another value, another order, the same glob twice: none makes another kind.
    assert put("c", ("b.*", "a.*", "a.*"), "data.team", "data.user", value="y")
    for globs, paths in ((("c.*",), ()), (("a.*",), ("data.user",)), (("a.*", "b.*"), ())):
        with pytest.raises(TooManyRules, match="has rules of 2 kinds"):
            put("d", globs, *paths)
    # What is replaced or deleted counts no more.
    assert not put("b", ("c.*",))
    store.delete_rule(webhook.id, "b")
    assert put("d", ("d.*",))
    other = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    assert store.put_rule(rule_of(other))[1]


def test_developers_may_use_a_number_of_kinds_in_all_webhooks_of_their_account(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_kinds, "KINDS_PER_ACCOUNT_MAX", 2)
    account = webhook.account_id
    second = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))

    def put(owner: Webhook, name: str, glob: str, *, limited: str | None = account) -> bool:
        return store.put_rule(rule_of(owner, name, glob), of_account=limited)[1]

    put(webhook, "a", "a.*")
    put(second, "a", "b.*")
    assert put(second, "b", "a.*")
    for owner, name in ((webhook, "c"), (second, "c"), (second, "b")):
        with pytest.raises(TooManyRules, match="has rules of 2 kinds; more are"):
            put(owner, name, "c.*")
    # The only rule of its kind makes room for its replacement; operators have no such limit.
    assert not put(second, "a", "c.*")
    assert put(webhook, "d", "d.*", limited=None)
    store.delete_webhook(second.id)
    store.delete_rule(webhook.id, "d")
    assert put(webhook, "d", "d.*")


def test_developers_may_use_a_number_of_globs_and_sets_of_paths(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_kinds, "GLOBS_PER_ACCOUNT_MAX", 3)
    monkeypatch.setattr(rule_kinds, "PATH_SETS_PER_ACCOUNT_MAX", 1)
    account = webhook.account_id

    def put(name: str, globs: tuple[str, ...], *paths: str) -> bool:
        where = tuple((path, name) for path in paths)
        rule = Rule(webhook.id, name, globs, where)
        return store.put_rule(rule, of_account=account)[1]

    put("a", ("a", "b"), "data.x", "data.y")
    put("b", ("b", "c"))
    assert put("c", ("a", "c"), "data.y", "data.x")
    with pytest.raises(TooManyRules, match="3 different globs, of at most 3; more are not"):
        put("d", ("a", "d"))
    with pytest.raises(TooManyRules, match="rules with 1 sets of paths"):
        put("d", ("a",), "data.x")
    new = NewWebhook("https://example.com/", "", new_secret())
    with pytest.raises(TooManyRules):
        store.create_webhook(new, at_most=20, event_types=["d"])
    assert store.create_webhook(new, event_types=["d"])
    assert len(store.webhooks().items) == 2


def test_developers_may_use_a_number_of_patterns_and_alternatives(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_kinds, "PATTERNS_PER_ACCOUNT_MAX", 3)
    monkeypatch.setattr(rule_kinds, "ALTERNATIVES_PER_ACCOUNT_MAX", 4)

    def put(name: str, *, limited: str | None = webhook.account_id, **where: Any) -> bool:
        rule = Rule(webhook.id, name, ("*",), conditions_of(where))
        return store.put_rule(rule, of_account=limited)[1]

    put("a", x=["a", {"prefix": "b"}], y=[1])
    # The same patterns with a value, and in another order, are no further ones.
    assert put("b", y=[1], x=["a", {"prefix": "b"}], z=1)
    with pytest.raises(TooManyRules, match="3 alternatives in patterns, of at most 4; more are"):
        put("c", x=["a", "b"])
    assert put("c", x=["a"])
    assert put("d", x="a")
    monkeypatch.setattr(rule_kinds, "PATTERNS_PER_ACCOUNT_MAX", 2)
    with pytest.raises(TooManyRules, match="has rules with 2 different patterns; more are not"):
        put("e", x=["b"])
    assert put("e", x=["b"], limited=None)


def test_patterns_make_kinds(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_kinds, "KINDS_PER_WEBHOOK_MAX", 2)

    def put(name: str, **where: Any) -> bool:
        return store.put_rule(Rule(webhook.id, name, ("*",), conditions_of(where)))[1]

    put("a", x=["a"], y=1)
    assert put("b", x=["a"], y=2)
    assert put("c", x="a", y=1)
    with pytest.raises(TooManyRules, match="has rules of 2 kinds"):
        put("d", x=["b"], y=1)


def test_the_limits_of_an_account_do_not_count_other_accounts(
    store: Store, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_kinds, "KINDS_PER_ACCOUNT_MAX", 1)
    store.put_rule(rule_of(webhook, "a", "a.*"), of_account=webhook.account_id)
    new = NewWebhook("https://example.com/", "", new_secret(), "acc_other")
    other = store.create_webhook(new)
    assert store.put_rule(rule_of(other, "b", "b.*"), of_account="acc_other")[1]
