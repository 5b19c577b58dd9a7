"""The rules that cost most within the limits of an account."""

import json

from app.domain.event_values import EventBody
from app.domain.patterns import count_alternatives
from app.domain.rules import (
    ALTERNATIVES_PER_ACCOUNT_MAX,
    CONDITIONS_MAX,
    GLOBS_PER_ACCOUNT_MAX,
    KINDS_PER_ACCOUNT_MAX,
    KINDS_PER_WEBHOOK_MAX,
    PATH_SETS_PER_ACCOUNT_MAX,
    PATTERNS_PER_ACCOUNT_MAX,
)
from benchmarks.rule_matching import Event, index_of, worst_patterns, worst_rules

DATA = {name: number for number, name in enumerate("abcdefgh")}
EVENT = Event("order.created", json.dumps({"data": DATA}).encode())


def test_the_worst_rules_use_up_the_limits_of_an_account() -> None:
    rules = list(worst_rules(EVENT))
    assert len({rule.kind for rule in rules}) == KINDS_PER_ACCOUNT_MAX
    assert len({glob for rule in rules for glob in rule.event_types}) == GLOBS_PER_ACCOUNT_MAX
    assert len({rule.kind[1] for rule in rules}) == PATH_SETS_PER_ACCOUNT_MAX
    for webhook_id in {rule.webhook_id for rule in rules}:
        kinds = {rule.kind for rule in rules if rule.webhook_id == webhook_id}
        assert len(kinds) == KINDS_PER_WEBHOOK_MAX


def test_the_worst_patterns_use_up_the_limits_of_an_account() -> None:
    patterns = {rule.where for rule in worst_patterns()}
    assert len(patterns) == PATTERNS_PER_ACCOUNT_MAX
    assert count_alternatives(patterns) == ALTERNATIVES_PER_ACCOUNT_MAX
    assert all(len(where) <= CONDITIONS_MAX for where in patterns)


def test_the_worst_rules_match_nothing() -> None:
    for rules in (worst_rules(EVENT), worst_patterns()):
        assert not index_of(rules).match(EVENT.event_type, EventBody(EVENT.body))
