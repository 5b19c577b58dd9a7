"""Which webhooks have a rule that matches an event."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain import match_index
from app.domain.event_values import EventBody
from app.domain.globs import glob_matches
from app.domain.match_index import MatchIndex
from app.domain.rules import Rule, Scalar, document_of
from tests.support.function_calls import calls_of


def index_of(*rules: Rule) -> MatchIndex:
    index = MatchIndex()
    for rule in rules:
        index.put(rule.webhook_id, rule)
    return index


def body(**data: Any) -> bytes:
    return json.dumps({"id": "evt_1", "type": "follow.created", "data": data}).encode()


def test_a_rule_without_conditions_matches_by_type_only() -> None:
    index = index_of(
        Rule("wh_a", "one", ("follow.*", "block.*")), Rule("wh_b", "one", ("tweet.*",))
    )
    assert list(index.match("follow.created", EventBody(b"no JSON"))) == ["wh_a"]
    assert list(index.match("tweet.created", EventBody(b""))) == ["wh_b"]
    assert list(index.match("mute.created", EventBody(b""))) == []


def test_a_webhook_with_several_matching_rules_is_found_once() -> None:
    index = index_of(
        Rule("wh_a", "one", ("*", "follow.*")),
        Rule("wh_a", "two", ("*",)),
        Rule("wh_a", "three", ("*",), (("data.userId", "42"),)),
    )
    assert list(index.match("follow.created", EventBody(body(userId="42")))) == ["wh_a"]


def test_all_conditions_of_a_rule_must_match() -> None:
    index = index_of(Rule("wh_a", "one", ("*",), (("data.userId", "42"), ("data.to.id", 7))))
    assert list(index.match("x", EventBody(body(userId="42", to={"id": 7})))) == ["wh_a"]
    assert list(index.match("x", EventBody(body(userId="42", to={"id": 8})))) == []
    assert list(index.match("x", EventBody(body(userId="42")))) == []


@pytest.mark.parametrize(
    ("wanted", "found", "fits"),
    [
        ("42", 42, False),
        (42, "42", False),
        (42, 42.0, True),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (0, False, False),
        (False, None, False),
        (None, None, True),
        (None, [], False),
        ("", None, False),
        (2**53 + 1, float(2**53), False),
        ("x", {"x": 1}, False),
        ("x", ["x"], False),
    ],
)
def test_values_compare_as_in_json(wanted: Scalar, found: Any, fits: bool) -> None:
    index = index_of(Rule("wh_a", "one", ("*",), (("data.value", wanted),)))
    assert bool(index.match("x", EventBody(body(value=found)))) is fits


def test_a_missing_value_does_not_equal_null() -> None:
    index = index_of(Rule("wh_a", "one", ("*",), (("data.value", None),)))
    assert list(index.match("x", EventBody(body()))) == []


@pytest.mark.parametrize("value", [b"", b"\xff", b"5", b"[]", b"[" * 100_000, b'{"data": 5}'])
def test_a_body_without_the_path_matches_no_condition(value: bytes) -> None:
    index = index_of(
        Rule("wh_a", "one", ("*",), (("data.userId", "42"),)), Rule("wh_b", "one", ("*",))
    )
    assert list(index.match("x", EventBody(value))) == ["wh_b"]


def test_a_rule_put_again_replaces_the_previous_one() -> None:
    index = index_of(Rule("wh_a", "one", ("*",)), Rule("wh_a", "one", ("follow.*",)))
    assert (len(index), list(index.match("x", EventBody(b"")))) == (1, [])


def test_removed_rules_leave_no_entries() -> None:
    index = index_of(
        Rule("wh_a", "one", ("*", "*"), (("data.userId", "42"),)),
        Rule("wh_a", "two", ("*",)),
        Rule("wh_b", "one", ("*",)),
    )
    index.remove("wh_b", "one")
    index.remove("wh_b", "one")
    assert list(index.match("x", EventBody(body(userId="42")))) == ["wh_a"]
    index.remove_owner("wh_a")
    index.remove_owner("wh_a")
    assert (len(index), index.has_conditions) == (0, False)
    assert list(index.match("x", EventBody(body(userId="42")))) == []


def test_a_known_event_type_is_not_compared_with_all_globs() -> None:
    lists = [tuple(f"*{number}*{glob}?" for glob in range(50)) for number in range(20 * 20)]
    index = index_of(
        *(Rule(f"wh_{number % 20}", f"rule{number}", globs) for number, globs in enumerate(lists)),
        Rule("wh_a", "one", ("follow.*",)),
    )
    assert list(index.match("follow.created", EventBody(b"{}"))) == ["wh_a"]
    assert calls_of(lambda: index.match("follow.created", EventBody(b"{}"))) < 50
    # A rule with conditions changes nothing for other types.
    index.put("wh_b", Rule("wh_b", "one", lists[0], (("data.userId", "42"),)))
    index.put("wh_b", Rule("wh_b", "two", lists[0], (("data.userId", "43"),)))
    index.match("follow.created", EventBody(b"{}"))
    index.remove("wh_b", "two")
    assert calls_of(lambda: index.match("follow.created", EventBody(b"{}"))) < 50


def test_conditions_on_members_that_the_event_lacks_cost_nothing() -> None:
    index = index_of(
        *(
            Rule("wh_a", f"rule{number}", ("*",), ((f"data.{number}.x", 1), ("data.u", number)))
            for number in range(5_000)
        ),
        Rule("wh_b", "one", ("*",), (("data.userId", "42"),)),
    )
    assert list(index.match("x", EventBody(body(userId="42", u=7)))) == ["wh_b"]
    assert calls_of(lambda: index.match("x", EventBody(body(userId="42", u=7)))) < 200


def test_a_body_is_not_parsed_for_a_type_without_conditions() -> None:
    index = index_of(
        Rule("wh_a", "one", ("follow.*",)),
        Rule("wh_b", "one", ("dm.*",), (("data.userId", "42"),)),
    )
    long = body(userId=["42"] * 1_000)
    assert list(index.match("follow.created", EventBody(long))) == ["wh_a"]
    assert list(index.match("dm.created", EventBody(body(userId="42")))) == ["wh_b"]
    unparsed, parsed = (
        calls_of(lambda: index.match(event_type, EventBody(long)))  # noqa: B023  called at once
        for event_type in ("follow.created", "dm.created")
    )
    assert unparsed < parsed


def test_rules_that_are_changed_apply_to_known_event_types() -> None:
    index = index_of(Rule("wh_a", "one", ("a.*",)))
    event = body(userId="42")
    assert list(index.match("a.b", EventBody(event))) == ["wh_a"]
    index.put("wh_b", Rule("wh_b", "one", ("*.b",)))
    assert list(index.match("a.b", EventBody(event))) == ["wh_a", "wh_b"]
    index.put("wh_c", Rule("wh_c", "one", ("a.*",), (("data.userId", "42"),)))
    index.put("wh_aa", Rule("wh_aa", "one", ("a.*",), (("data.userId", "42"),)))
    assert list(index.match("a.b", EventBody(event))) == ["wh_a", "wh_aa", "wh_b", "wh_c"]
    index.put("wh_b", Rule("wh_b", "one", ("b.*",)))
    index.remove_owner("wh_c")
    assert list(index.match("a.b", EventBody(event))) == ["wh_a", "wh_aa"]
    index.remove("wh_aa", "one")
    index.remove("wh_a", "one")
    assert list(index.match("a.b", EventBody(event))) == []


def test_a_path_may_be_the_beginning_of_another() -> None:
    index = index_of(
        Rule("wh_a", "one", ("*",), (("data.user", "42"),)),
        Rule("wh_b", "one", ("*",), (("data.user.id", "42"),)),
        Rule("wh_c", "one", ("*",), (("data.user", "42"), ("data.user.id", "42"))),
    )
    assert list(index.match("x", EventBody(body(user="42")))) == ["wh_a"]
    assert list(index.match("x", EventBody(body(user={"id": "42"})))) == ["wh_b"]
    index.remove_owner("wh_c")
    index.remove_owner("wh_b")
    assert list(index.match("x", EventBody(body(user="42")))) == ["wh_a"]
    assert list(index.match("x", EventBody(body(user={"id": "42"})))) == []


def test_the_matches_of_old_event_types_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_index, "TYPES_KEPT", 10)
    index = index_of(Rule("wh_a", "one", ("*",)))
    for number in range(50):
        assert list(index.match(f"type{number}", EventBody(b""))) == ["wh_a"]
    assert len(index._types) == 10
    monkeypatch.setattr(match_index, "IDS_KEPT", 3)
    index.match("new", EventBody(b""))
    assert len(index._types) == 3


SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, "1", "", "a"])
CONDITIONS = st.dictionaries(st.sampled_from(["data.a", "data.b", "type"]), SCALARS, max_size=2)
RULES = st.builds(
    Rule,
    webhook_id=st.sampled_from(["wh_a", "wh_b", "wh_c"]),
    name=st.sampled_from(["one", "two"]),
    event_types=st.lists(st.sampled_from(["*", "a.*", "?.b", "a.b"]), min_size=1).map(tuple),
    where=CONDITIONS.map(lambda conditions: tuple(conditions.items())),
)
EVENTS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"type": st.sampled_from(["a.b", "c.b", "a"])},
    optional={"data": st.dictionaries(st.sampled_from(["a", "b"]), SCALARS | st.just([]))},
)


def naive(rules: dict[tuple[str, str], Rule], event: dict[str, Any]) -> list[str]:
    """Check every rule, comparing JSON as text: "1" is not 1, and true is not 1."""

    def holds(path: str, wanted: Scalar) -> bool:
        place: Any = event
        for step in path.split("."):
            if not isinstance(place, dict) or step not in place:
                return False
            place = place[step]
        return as_json(place) == as_json(wanted)

    def as_json(value: Any) -> str:
        return json.dumps(float(value) if type(value) is int else value)

    return sorted(
        {
            rule.webhook_id
            for rule in rules.values()
            if any(glob_matches(glob, event["type"]) for glob in rule.event_types)
            and all(holds(path, wanted) for path, wanted in document_of(rule.where).items())
        }
    )


@given(st.lists(RULES | st.tuples(st.sampled_from(["wh_a", "wh_b"]), st.just("one"))), EVENTS)
def test_the_index_finds_the_same_as_checking_every_rule(
    changes: list[Rule | tuple[str, str]], event: dict[str, Any]
) -> None:
    index, rules = MatchIndex(), dict[tuple[str, str], Rule]()
    for change in changes:
        if isinstance(change, Rule):
            index.put(change.webhook_id, change)
            rules[change.webhook_id, change.name] = change
        else:
            index.remove(*change)
            rules.pop(change, None)
    assert len(index) == len(rules)
    assert list(index.match(event["type"], EventBody(json.dumps(event).encode()))) == naive(
        rules, event
    )
