"""Grants decide which events an account may receive."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.domain.event_values import EventBody
from app.domain.globs import glob_matches
from app.domain.grant_index import EventValues, GrantIndex
from app.domain.grants import Grant
from app.domain.rules import Scalar


def values_of(body: bytes) -> EventValues:
    return EventValues(EventBody(body))


def body(**data: Any) -> EventValues:
    return values_of(json.dumps({"data": data}).encode())


def index_of(*grants: Grant) -> GrantIndex:
    index = GrantIndex()
    for grant in grants:
        index.put(grant)
    return index


def test_an_account_without_grants_is_not_covered() -> None:
    assert not GrantIndex().covers("acc_a", "x", values_of(b"{}"))
    index = index_of(Grant("acc_a", "all", ("*",)))
    assert index.covers("acc_a", "x", values_of(b"no JSON"))
    assert not index.covers("acc_b", "x", values_of(b"{}"))


def test_a_grant_covers_its_event_types_and_values_only() -> None:
    index = index_of(Grant("acc_a", "user-42", ("follow.*",), (("data.userId", 42),)))
    assert index.covers("acc_a", "follow.created", body(userId=42))
    assert not index.covers("acc_a", "follow.created", body(userId="42"))
    assert not index.covers("acc_a", "follow.created", body(userId=43))
    assert not index.covers("acc_a", "follow.created", body())
    assert not index.covers("acc_a", "follow.created", values_of(b"no JSON"))
    assert not index.covers("acc_a", "dm.sent", body(userId=42))


def test_a_replaced_or_removed_grant_covers_nothing() -> None:
    index = index_of(Grant("acc_a", "one", ("a",)), Grant("acc_a", "two", ("a", "b")))
    index.put(Grant("acc_a", "one", ("c",)))
    assert [index.covers("acc_a", each, body()) for each in "abc"] == [True, True, True]
    index.remove("acc_a", "two")
    assert [index.covers("acc_a", each, body()) for each in "abc"] == [False, False, True]
    index.remove("acc_a", "one")
    index.remove("acc_a", "one")
    assert not index.covers("acc_a", "c", body())


types = st.sampled_from(["a", "b", "a.b"])
globs = st.lists(st.sampled_from(["*", "a*", "b", "?.b"]), min_size=1, max_size=2)
scalars = st.sampled_from([0, 1, True, False, None, "1", 1.0])
conditions = st.dictionaries(st.sampled_from(["x", "y", "z.x"]), scalars, max_size=2)


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    account = draw(st.sampled_from(["acc_a", "acc_b"]))
    name = draw(st.sampled_from(["one", "two", "three"]))
    return Grant(account, name, tuple(draw(globs)), tuple(draw(conditions).items()))


def is_covered(grant: Grant, event_type: str, event: dict[str, Any]) -> bool:
    """The definition of a grant, one by one."""
    found = {**event, "z.x": event.get("z", {}).get("x", ...)}
    return any(glob_matches(glob, event_type) for glob in grant.event_types) and all(
        path in found and is_same(found[path], value) for path, value in grant.where
    )


def is_same(one: object, other: Scalar) -> bool:
    return one is not ... and (one == other) and (isinstance(one, bool) is isinstance(other, bool))


@given(
    st.lists(grants(), max_size=8),
    st.lists(st.tuples(st.sampled_from(["acc_a", "acc_b"]), st.sampled_from(["one", "two"]))),
    types,
    st.dictionaries(st.sampled_from(["x", "y"]), scalars),
    st.dictionaries(st.just("x"), scalars),
)
def test_the_index_decides_as_the_grants_one_by_one(
    added: list[Grant],
    removed: list[tuple[str, str]],
    event_type: str,
    top: dict[str, Scalar],
    inner: dict[str, Scalar],
) -> None:
    index, left = index_of(*added), {(each.account_id, each.name): each for each in added}
    for key in removed:
        index.remove(*key)
        left.pop(key, None)
    event = {**top, "z": inner}
    for account_id in ("acc_a", "acc_b"):
        wanted = any(
            is_covered(grant, event_type, event)
            for grant in left.values()
            if grant.account_id == account_id
        )
        content = values_of(json.dumps(event).encode())
        assert index.covers(account_id, event_type, content) is wanted
