import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.groups.stored import CommittedOffset, StoredMember, StoredMembership
from logbroker.registry.group_payloads import (
    format_offset,
    membership_fields,
    parse_membership,
    parse_offset,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("committed", "text"),
    [
        (CommittedOffset(0), "0"),
        (CommittedOffset(42, leader_epoch=0), "42"),
        (CommittedOffset(42, leader_epoch=3), '42 {"leader_epoch": 3}'),
        (CommittedOffset(42, metadata='a "b"'), '42 {"metadata": "a \\"b\\""}'),
        (CommittedOffset(1, 2, "m"), '1 {"leader_epoch": 2, "metadata": "m"}'),
    ],
)
def test_an_offset_says_no_more_than_there_is_to_say(committed: CommittedOffset, text: str) -> None:
    assert format_offset(committed) == text


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-1, 1, 2**31 - 1]), TEXTS)
def test_an_offset_is_read_back_as_it_was(offset: int, epoch: int, metadata: str) -> None:
    committed = CommittedOffset(offset, epoch, metadata)
    assert parse_offset(format_offset(committed)) == committed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "--1",
        "-9223372036854775809",
        "x",
        " 1",
        "1.5",
        "²",
        "9223372036854775808",
        "1 x",
        "1 []",
        '1 {"leader_epoch":[]}',
    ],
)
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_offset(text)


MEMBERS = st.builds(
    StoredMember,
    TEXTS,
    st.none() | TEXTS,
    TEXTS,
    TEXTS,
    st.integers(0, 2**31),
    st.integers(0, 2**31),
    st.lists(st.tuples(TEXTS, st.binary())).map(tuple),
    st.binary(),
)


@given(
    st.builds(
        StoredMembership,
        st.integers(0, 2**31),
        TEXTS,
        st.none() | TEXTS,
        st.none() | TEXTS,
        st.lists(MEMBERS, max_size=3).map(tuple),
    )
)
def test_a_membership_is_read_back_from_json_as_it_was(membership: StoredMembership) -> None:
    text = json.dumps(membership_fields(membership))
    assert parse_membership(json.loads(text)) == membership


def test_a_membership_without_one_of_its_fields_is_refused() -> None:
    member = StoredMember("m", None, "c", "h", 1, 2, (("range", b""),), b"")
    whole = membership_fields(StoredMembership(1, "consumer", "range", "m", (member,)))
    for field in whole:
        with pytest.raises(ValueError, match=r".+"):
            parse_membership({k: v for k, v in whole.items() if k != field})
    for field in whole["members"][0]:
        fields = {k: v for k, v in whole["members"][0].items() if k != field}
        with pytest.raises(ValueError, match="missing"):
            parse_membership({**whole, "members": [fields]})


@pytest.mark.parametrize("fields", [[], None, "x", {"version": 2}])
def test_what_is_no_membership_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_membership(fields)  # type: ignore[arg-type]
