"""Patterns of rules: operators, alternatives, arrays, and which webhooks the index finds."""

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.event_values import EventBody
from app.domain.globs import glob_matches
from app.domain.match_index import MatchIndex
from app.domain.patterns import (
    ALTERNATIVES_MAX,
    OPERATORS,
    PatternInvalid,
    compile_alternatives,
)
from app.domain.rules import Alternatives, Rule, conditions_of, document_of
from tests.support.function_calls import calls_of


def index_of(*rules: Rule) -> MatchIndex:
    index = MatchIndex()
    for rule in rules:
        index.put(rule.webhook_id, rule)
    return index


def rule_of(where: dict[str, Any], webhook_id: str = "wh_a", *event_types: str) -> Rule:
    return Rule(webhook_id, "one", event_types or ("*",), conditions_of(where))


def found(index: MatchIndex, event: dict[str, Any], event_type: str = "x") -> list[str]:
    return list(index.match(event_type, EventBody(json.dumps(event).encode())))


def fits(where: dict[str, Any], event: dict[str, Any]) -> bool:
    return bool(found(index_of(rule_of(where)), event))


LONG: Final = 10**400


@pytest.mark.parametrize(
    ("alternatives", "allowed", "refused"),
    [
        (["a", 1, None], ["a", 1, 1.0, None], ["1", True, "A", ""]),
        ([True], [True], [1, "true", False]),
        ([{"prefix": "ab"}], ["ab", "abc"], ["a", "AB", "cab", 1, None]),
        ([{"prefix": ""}], ["", "a"], [1, None]),
        ([{"prefix": {"equals-ignore-case": "Ab"}}], ["ABc", "ab"], ["a", "cab", 1]),
        ([{"prefix": {"equals-ignore-case": "STRASSE"}}], ["straße 1"], ["strase"]),
        ([{"suffix": ".png"}], [".png", "a.png"], [".PNG", "png", 1]),
        ([{"suffix": ""}], ["", "a"], [1]),
        ([{"suffix": {"equals-ignore-case": ".PNG"}}], ["a.pNg", ".png"], ["png", 1]),
        ([{"suffix": {"equals-ignore-case": ""}}], ["", "a"], [None]),
        ([{"equals-ignore-case": "Straße"}], ["STRASSE", "straße"], ["strasse 1", "s", 1]),
        ([{"wildcard": "a*c"}], ["ac", "abc", "a*c"], ["a", "abcd", "xac", 1]),
        ([{"wildcard": "a*b*c"}], ["abc", "aXbXbXc"], ["acb", "ac"]),
        ([{"wildcard": "ab*bc"}], ["abbc"], ["abc"]),
        ([{"wildcard": "abc"}], ["abc"], ["ab", "abcd", 1]),
        ([{"wildcard": r"a\*b\\*"}], ["a*b\\", "a*b\\c"], ["aXb\\", "a*bc"]),
        ([{"numeric": [">", 0, "<=", 5]}], [1, 5, 0.5], [0, 6, "1", True, None]),
        ([{"numeric": ["=", 3.0]}], [3, 3.0], [3.1, "3"]),
        ([{"numeric": ["<", LONG]}], [LONG - 1, -LONG, 1.5], [LONG]),
        ([{"numeric": [">=", 1, "<", 9, ">", 3]}], [4], [3, 9]),
        ([{"exists": True}], [None, 0, "", False], []),
        ([{"exists": False}], [], [None, 0, "a"]),
        ([{"anything-but": "a"}], ["b", 1, None], ["a"]),
        ([{"anything-but": [1, "a", None]}], [2, "b", True], [1, 1.0, "a", None]),
        ([{"anything-but": {"prefix": "a"}}], ["b", "ba", 1], ["a", "ab"]),
        ([{"anything-but": {"prefix": ["a", "b"]}}], ["c"], ["ab", "b"]),
        ([{"anything-but": {"suffix": ["a", "b"]}}], ["c"], ["ba", "b"]),
        ([{"anything-but": {"equals-ignore-case": "A"}}], ["b"], ["a", "A"]),
        ([{"anything-but": {"wildcard": "*/bin/*.jar"}}], ["/bin/a"], ["/bin/a.jar"]),
        (["a", {"prefix": "b"}, {"numeric": [">", 1]}], ["a", "bc", 2], ["ab", 1]),
    ],
)
def test_an_operator_allows_values(
    alternatives: list[Any], allowed: list[Any], refused: list[Any]
) -> None:
    where = {"data.x": alternatives}
    assert [each for each in allowed if not fits(where, {"data": {"x": each}})] == []
    assert [each for each in refused if fits(where, {"data": {"x": each}})] == []


@pytest.mark.parametrize(
    ("alternatives", "place", "allowed"),
    [
        ([], (), "one or more alternatives"),
        ([{}], (0,), "an object with one of prefix, suffix"),
        ([{"prefix": "a", "suffix": "b"}], (0,), "an object with one of prefix, suffix"),
        (["a", {"cidr": "10.0.0.0/8"}], (1,), "an object with one of prefix, suffix"),
        ([["a"]], (0,), "a text of up to 1,000 characters, a number"),
        (["a" * 1_001], (0,), "a text of up to 1,000 characters, a number"),
        ([float("inf")], (0,), "a text of up to 1,000 characters, a number"),
        (["\ud800"], (0,), "a text of up to 1,000 characters, a number"),
        ([{"prefix": 1}], (0, "prefix"), "a text of up to 1,000 characters"),
        ([{"prefix": ["a"]}], (0, "prefix"), "a text of up to 1,000 characters"),
        ([{"suffix": {"suffix": "a"}}], (0, "suffix"), 'a text, or {"equals-ignore-case": a text}'),
        (
            [{"prefix": {"equals-ignore-case": 1}}],
            (0, "prefix", "equals-ignore-case"),
            "a text of up to 1,000 characters",
        ),
        ([{"equals-ignore-case": None}], (0, "equals-ignore-case"), "a text of up to"),
        ([{"wildcard": "a**"}], (0, "wildcard"), "a text without consecutive `*`"),
        ([{"wildcard": r"a\b"}], (0, "wildcard"), r"a text in which `\` precedes `*` or `\`"),
        ([{"wildcard": "a\\"}], (0, "wildcard"), r"a text in which `\` precedes `*` or `\`"),
        ([{"numeric": []}], (0, "numeric"), "pairs of <, <=, =, >, >= and a number"),
        ([{"numeric": [">"]}], (0, "numeric"), "pairs of"),
        ([{"numeric": ["!=", 1]}], (0, "numeric"), "pairs of"),
        ([{"numeric": [[], 1]}], (0, "numeric"), "pairs of"),
        ([{"numeric": [">", "1"]}], (0, "numeric"), "pairs of"),
        ([{"numeric": [">", True]}], (0, "numeric"), "pairs of"),
        ([{"numeric": [">", float("nan")]}], (0, "numeric"), "pairs of"),
        ([{"exists": 1}], (0, "exists"), "true or false"),
        ([{"anything-but": []}], (0, "anything-but"), "one or more values"),
        ([{"anything-but": ["a", []]}], (0, "anything-but", 1), "a text of up to 1,000 char"),
        ([{"anything-but": {"numeric": [">", 1]}}], (0, "anything-but"), "a value, a list of"),
        (
            [{"anything-but": {"prefix": ["a", 1]}}],
            (0, "anything-but", "prefix", 1),
            "a text of up to 1,000 characters",
        ),
    ],
)
def test_what_is_not_a_pattern_is_rejected_with_its_place(
    alternatives: list[Any], place: tuple[str | int, ...], allowed: str
) -> None:
    with pytest.raises(PatternInvalid) as caught:
        compile_alternatives(alternatives)
    assert (caught.value.place, caught.value.allowed[: len(allowed)]) == (place, allowed)
    part: Any = alternatives
    for step in place:
        part = part[step]
    assert caught.value.value is part or caught.value.value == part


def test_every_alternative_counts() -> None:
    alternatives = [
        *("a", 1, {"exists": False}, {"prefix": "a"}, {"numeric": [">", 1, "<", 2]}),
        *({"anything-but": ["a", "b"]}, {"anything-but": {"suffix": ["a", "b", "c"]}}),
    ]
    assert compile_alternatives(alternatives).size == 4 + 2 + 2 + 3 <= ALTERNATIVES_MAX
    assert {name for each in alternatives if isinstance(each, dict) for name in each} < set(
        OPERATORS
    )


def test_one_element_of_an_array_suffices() -> None:
    assert fits({"data.tags": ["vip"]}, {"data": {"tags": ["new", "vip"]}})
    assert fits({"data.tags": [{"prefix": "v"}]}, {"data": {"tags": [["new"], [[], ["vip"]]]}})
    assert fits({"data.tags": [{"anything-but": "vip"}]}, {"data": {"tags": ["new", "vip"]}})
    assert not fits({"data.tags": [{"anything-but": "vip"}]}, {"data": {"tags": ["vip"]}})
    # A value without a list is compared with the whole member, as before there were patterns.
    assert not fits({"data.tags": "vip"}, {"data": {"tags": ["vip"]}})


def test_conditions_on_objects_in_an_array_must_be_met_by_one_object() -> None:
    where = {"data.items.sku": ["A"], "data.items.count": [{"numeric": [">", 1]}]}
    one, other = {"sku": "A", "count": 2}, {"sku": "B", "count": 1}
    assert fits(where, {"data": {"items": [other, one]}})
    assert fits(where, {"data": {"items": one}})
    assert not fits(where, {"data": {"items": [one | {"count": 1}, other | {"count": 2}]}})


@pytest.mark.parametrize(
    ("data", "is_absent"),
    [
        ({}, True),
        ({"x": None}, False),
        ({"x": []}, True),
        ({"x": [[], {}]}, True),
        ({"x": [[0]]}, False),
        # Only scalars count: an object has no value of its own.
        ({"x": {"y": 1}}, True),
    ],
)
def test_a_member_without_a_value_is_absent(data: dict[str, Any], is_absent: bool) -> None:
    assert fits({"data.x": [{"exists": False}]}, {"data": data}) is is_absent
    assert fits({"data.x": [{"exists": True}]}, {"data": data}) is not is_absent
    assert fits({"data.x": ["a", {"exists": False}]}, {"data": data}) is is_absent


def test_a_member_is_absent_if_no_element_has_it() -> None:
    where = {"data.items.sku": [{"exists": False}]}
    assert fits(where, {"data": {"items": [{"count": 1}, 5]}})
    assert fits(where, {"data": {"items": []}})
    assert fits(where, {})
    assert not fits(where, {"data": {"items": [{"count": 1}, {"sku": "A"}]}})


def test_values_and_patterns_of_a_rule_must_both_hold() -> None:
    where = {"data.userId": "42", "data.amount": [{"numeric": [">", 100]}]}
    assert fits(where, {"data": {"userId": "42", "amount": 101}})
    assert not fits(where, {"data": {"userId": "42", "amount": 100}})
    assert not fits(where, {"data": {"userId": "43", "amount": 101}})
    assert not fits(where, {"data": {"userId": ["42"], "amount": 101}})


def test_a_deeply_nested_event_is_searched() -> None:
    event = '{"data": {"x": ' + "[" * 900 + '"a"' + "]" * 900 + "}}"
    index = index_of(rule_of({"data.x": ["a"]}), rule_of({"data.x": [{"exists": False}]}, "wh_b"))
    assert list(index.match("x", EventBody(event.encode()))) == ["wh_a"]


def test_removed_patterns_leave_no_entries() -> None:
    wheres: list[dict[str, Any]] = [
        {"data.x": ["a", "b"]},
        {"data.x.y": [{"prefix": "a"}]},
        {"data.x": [{"exists": False}]},
        {"data.x": "a", "data.y": ["a"]},
    ]
    rules = [rule_of(where, f"wh_{number}") for number, where in enumerate(wheres)]
    index = index_of(*rules)
    assert found(index, {"data": {"x": "a", "y": "a"}}) == ["wh_0", "wh_3"]
    for rule in rules:
        assert index.has_conditions
        index.remove_owner(rule.webhook_id)
    assert (len(index), index.has_conditions) == (0, False)
    assert found(index, {"data": {"x": "a", "y": "a"}}) == []
    index.put("wh_0", rules[0])
    assert found(index, {"data": {"x": "b"}}) == ["wh_0"]


def test_patterns_of_values_that_the_event_lacks_cost_nothing() -> None:
    rules = [
        rule_of({"data.u": [number, -number], "data.v": [{"prefix": "a"}]}, f"wh_{number}")
        for number in range(2_000)
    ]
    index = index_of(*rules)
    event = {"data": {"u": 7, "v": "abc"}}
    assert found(index, event) == ["wh_7"]
    assert calls_of(lambda: found(index, event)) < 300


def test_a_pattern_is_evaluated_once_and_only_for_a_matching_type() -> None:
    where = {"data.x": [{"wildcard": "a*"}]}
    owners = [rule_of(where, f"wh_{number}") for number in range(100)]
    others = [rule_of({"data.x": [{"prefix": f"{n}"}]}, f"wh_o{n}", "b.*") for n in range(100)]
    index = index_of(*owners, *others)
    event = {"data": {"x": "abc"}}
    assert len(found(index, event)) == 100
    shared = index_of(*owners)
    found(shared, event)
    assert calls_of(lambda: found(index, event)) < calls_of(lambda: found(shared, event)) + 250


ELEMENTS: Final = 4_000


@pytest.mark.parametrize(
    ("where", "items", "is_found"),
    [
        (
            {"data.items.coupon": [{"exists": False}], "data.items.kind": [{"prefix": "gift"}]},
            [{"kind": "book"}] * ELEMENTS,
            False,
        ),
        (
            {"data.items.a": [{"exists": False}], "data.items.b": [{"exists": False}]},
            [{"b": 1}, *[{}] * ELEMENTS],
            False,
        ),
        (
            {"data.items.parts.a": [{"exists": False}], "data.items.parts.b": ["x"]},
            [{"parts": [{}] * 40}] * (ELEMENTS // 40),
            False,
        ),
        (
            {
                "data.items.last": ["x"],
                **{
                    ".".join(("data.items", f"m{n}", *"abcdefghijkl")): [{"exists": False}]
                    for n in range(40)
                },
            },
            [*[{"last": "y"}] * (ELEMENTS - 1), {"last": "x"}],
            True,
        ),
    ],
)
def test_the_cost_of_absent_members_is_proportional_to_the_elements(
    where: dict[str, Any], items: list[dict[str, Any]], is_found: bool
) -> None:
    index, event = (
        index_of(rule_of(where)),
        EventBody(json.dumps({"data": {"items": items}}).encode()),
    )
    assert bool(list(index.match("x", event))) is is_found
    assert calls_of(lambda: list(index.match("x", event))) < 100 * ELEMENTS


SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2, "1", "", "a", "ab", "AB", "b"])
TEXTS = st.sampled_from(["", "a", "A", "b", "ab"])


def operators_named(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), TEXTS, min_size=1, max_size=1)


OF_TEXTS = ("prefix", "suffix", "equals-ignore-case", "wildcard")
COMPARISONS = st.tuples(st.sampled_from(["<", "<=", "=", ">", ">="]), st.sampled_from([0, 1, 1.5]))
ALTERNATIVES = st.one_of(
    SCALARS,
    operators_named(*OF_TEXTS),
    st.sampled_from([{"wildcard": "a*"}, {"wildcard": "*b"}, {"wildcard": "a*b"}]),
    st.booleans().map(lambda value: {"exists": value}),
    st.lists(COMPARISONS, min_size=1, max_size=2).map(lambda pairs: {"numeric": sum(pairs, ())}),
    st.one_of(
        SCALARS,
        st.lists(SCALARS, min_size=1, max_size=2),
        operators_named(*OF_TEXTS),
        st.lists(TEXTS, min_size=1, max_size=2).map(lambda texts: {"prefix": texts}),
    ).map(lambda operand: {"anything-but": operand}),
)
CONDITIONS = SCALARS | st.lists(ALTERNATIVES, min_size=1, max_size=3).map(json.dumps).map(
    json.loads
)
WHERES = st.dictionaries(st.sampled_from(["a", "b", "a.b", "a.c", "c.b"]), CONDITIONS, max_size=3)
RULES = st.builds(
    lambda webhook_id, name, types, where: Rule(webhook_id, name, types, conditions_of(where)),
    st.sampled_from(["wh_a", "wh_b", "wh_c"]),
    st.sampled_from(["one", "two"]),
    st.sampled_from([("*",), ("a.*", "b"), ("b",)]),
    WHERES,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
EVENTS = st.dictionaries(st.sampled_from("abc"), VALUES)


def choices(value: Any) -> Iterator[Any]:
    """Yield `value` with each array replaced by one of its elements, or by nothing if empty."""
    if isinstance(value, list):
        if not value:
            yield {}
        for each in value:
            yield from choices(each)
    elif isinstance(value, dict):
        for each in product(*(list(choices(member)) for member in value.values())):
            yield dict(zip(value, each, strict=True))
    else:
        yield value


def values_at(path: str, event: Any) -> Iterator[Any]:
    """Yield the value at a path if it is a scalar, of an event without arrays."""
    for step in path.split("."):
        if not isinstance(event, dict) or step not in event:
            return
        event = event[step]
    if not isinstance(event, dict | list):
        yield event


def same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def is_like(operator: str, text: str, value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return {
        "prefix": value.startswith(text),
        "suffix": value.endswith(text),
        "equals-ignore-case": value.lower() == text.lower(),
        "wildcard": glob_matches(text, value),
    }[operator]


def meets(value: Any, alternative: Any) -> bool:
    """Whether a scalar meets an alternative other than `{"exists": false}`."""
    if not isinstance(alternative, dict):
        return same(value, alternative)
    ((operator, operand),) = alternative.items()
    if operator == "exists":
        return bool(operand)
    if operator == "anything-but":
        if isinstance(operand, dict):
            ((inner, texts),) = operand.items()
            listed = texts if isinstance(texts, list) else [texts]
            return not any(is_like(inner, text, value) for text in listed)
        listed = operand if isinstance(operand, list) else [operand]
        return not any(same(value, each) for each in listed)
    if operator == "numeric":
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return all(
            ("<" in name and value < bound)
            or (">" in name and value > bound)
            or ("=" in name and value == bound)
            for name, bound in zip(operand[::2], operand[1::2], strict=True)
        )
    return is_like(operator, operand, value)


def meets_all(where: dict[str, Any], event: dict[str, Any]) -> bool:
    """Evaluate conditions on every way to choose one element of each array."""
    every = list(choices(event))

    def holds(path: str, condition: Any, chosen: Any) -> bool:
        if not isinstance(condition, list):
            return any(same(value, condition) for value in values_at(path, event))
        if not any(True for each in every for _ in values_at(path, each)):
            return {"exists": False} in condition
        return any(meets(value, each) for value in values_at(path, chosen) for each in condition)

    return any(all(holds(*each, chosen) for each in where.items()) for chosen in every)


@given(st.lists(RULES | st.tuples(st.sampled_from(["wh_a", "wh_b"]), st.just("one"))), EVENTS)
def test_the_index_finds_what_evaluating_every_rule_finds(
    changes: Sequence[Rule | tuple[str, str]], event: dict[str, Any]
) -> None:
    index, rules = MatchIndex(), dict[tuple[str, str], Rule]()
    for change in changes:
        if isinstance(change, Rule):
            index.put(change.webhook_id, change)
            rules[change.webhook_id, change.name] = change
        else:
            index.remove(*change)
            rules.pop(change, None)
    for event_type in ("a.b", "b", "c"):
        expected = {
            rule.webhook_id
            for rule in rules.values()
            if any(glob_matches(glob, event_type) for glob in rule.event_types)
            and meets_all(document_of(rule.where), event)
        }
        assert found(index, event, event_type) == sorted(expected)
    for webhook_id, name in rules:
        index.remove(webhook_id, name)
    assert not index.has_conditions


@given(WHERES)
def test_conditions_are_the_json_that_they_were_read_from(where: dict[str, Any]) -> None:
    conditions = conditions_of(where)
    assert json.dumps(document_of(conditions)) == json.dumps(where)
    patterns = [path for path, each in conditions if isinstance(each, Alternatives)]
    assert patterns == [path for path, each in where.items() if isinstance(each, list)]
