"""What of the log counts: records of ours, in order; nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.domain.log_records import (
    Change,
    Decided,
    LevelSet,
    SubjectDeleted,
    VersionDeleted,
    VersionRegistered,
    digest,
    encode,
    parse,
)
from logbroker.schemas.domain.state import Outcome, RegistryState
from tests.support.schemas.memory_log import Written

INT = SchemaText('"int"')
LONG = SchemaText('"long"')
FIRST = VersionRegistered("s", 1, 1, INT)


def chained(*written: tuple[Change, int | None]) -> Written:
    """Records of changes; with each the number, from 0 on, of the record that it follows."""
    records: Written = []
    for change, after in written:
        link = None if after is None else digest(*records[after])
        records.append(encode(Decided(change, link)))
    return records


def replay(*written: tuple[Change, int | None]) -> tuple[RegistryState, list[bool]]:
    """Apply changes that follow others: which of them count."""
    state = RegistryState()
    return state, [state.apply(*each) is Outcome.COUNTS for each in chained(*written)]


def test_a_record_counts_only_after_the_last_one_that_counted() -> None:
    state, counted = replay(
        (FIRST, None),
        (VersionRegistered("t", 1, 2, LONG), None),
        (VersionRegistered("t", 1, 2, LONG), 0),
        (VersionRegistered("u", 1, 1, INT), 1),
        (VersionRegistered("u", 1, 1, INT), 2),
    )
    assert counted == [True, False, True, False, True]
    assert state.subjects() == ["s", "t", "u"]


def test_a_record_that_was_written_twice_counts_once() -> None:
    state, counted = replay((FIRST, None), (FIRST, None))
    assert counted == [True, False]
    assert state.last == digest(*encode(Decided(FIRST, None)))
    assert state.skipped == {Outcome.REPEAT: 1}


FULL, NONE = (LevelSet("s", each) for each in (Compatibility.FULL, Compatibility.NONE))


def history() -> Written:
    """What counts in a log: the same change several times among it, with another before each."""
    other = VersionRegistered("s", 2, 2, LONG)
    changes: list[Change] = [FIRST, FULL, NONE, FULL, NONE, other, FULL, FULL]
    return chained(*zip(changes, [None, *range(len(changes))], strict=False))


def contents(state: RegistryState) -> object:
    schemas = [state.schema(each) for each in range(1, state.next_id)]
    return state.last, schemas, state.versions("s"), state.level("s")


def test_a_change_back_to_what_was_is_another_record() -> None:
    written = history()
    state = RegistryState()
    assert {state.apply(*each) for each in written} == {Outcome.COUNTS}
    assert state.level("s") is Compatibility.FULL
    assert len({digest(*each) for each in written}) == len(written)


@given(st.data())
def test_a_copy_with_repeats_says_what_the_original_says(data: st.DataObject) -> None:
    """A copier may go back to any record, any number of times, and skips none."""
    written = history()
    backs = data.draw(st.lists(st.integers(0, len(written)), max_size=6))
    reached = data.draw(st.lists(st.integers(0, len(written)), max_size=6).map(sorted))
    copy: Written = []
    end = 0
    for until, back in zip([*reached, len(written)], [0, *backs, *[0] * 7], strict=False):
        copy += written[min(back, end) : until]
        end = max(end, until)
    state, original = RegistryState(), RegistryState()
    repeats = Outcome.COUNTS, Outcome.REPEAT
    assert all(state.apply(*each, cluster=b"elsewhere") in repeats for each in copy)
    assert [original.apply(*each) for each in written] == [Outcome.COUNTS] * len(written)
    assert contents(state) == contents(original)


def test_a_digest_depends_on_lengths() -> None:
    assert len({digest(b"ab", b"c"), digest(b"a", b"bc"), digest(b"", b"abc")}) == 3


def test_a_digest_is_what_it_was() -> None:
    """Worked out beside this code: printf '%b' LENGTHS KEY VALUE | b2sum -l 128."""
    assert digest(b"key", b"value") == "e290ae870c043bf5b06ed3b6e0e1e708"


def test_what_was_decided_without_ones_own_changes_is_a_branch() -> None:
    """Two clusters diverge after a shared record; then each gets the other's records."""
    shared = chained((FIRST, None))
    east = chained((FIRST, None), (FULL, 0), (NONE, 1))[1:]
    west = chained((FIRST, None), (VersionRegistered("s", 2, 2, LONG), 0))[1:]
    state = RegistryState()
    for record in (*shared, *west):
        assert state.apply(*record, cluster=b"west") is Outcome.COUNTS
    before = contents(state)
    for record in (*east, *east):
        assert state.apply(*record, cluster=b"east") is Outcome.BRANCH
    assert state.apply(*shared[0], cluster=b"west") is Outcome.REPEAT
    assert contents(state) == before
    assert state.skipped == {Outcome.BRANCH: 4, Outcome.REPEAT: 1}


def test_a_record_that_came_too_late_in_its_own_log_is_no_branch() -> None:
    state = RegistryState()
    for record, outcome in zip(
        chained((FIRST, None), (FULL, 0), (NONE, 0)),
        (Outcome.COUNTS, Outcome.COUNTS, Outcome.LATE),
        strict=True,
    ):
        assert state.apply(*record, cluster=b"east") is outcome


@pytest.mark.parametrize(
    "change",
    [
        VersionRegistered("s", 1, 2, LONG),
        VersionRegistered("s", 3, 2, LONG),
        VersionRegistered("s", 2, 1, LONG),
        VersionRegistered("s", 2, 3, LONG),
        VersionRegistered("s", 2, 2, INT),
        VersionDeleted("s", 1, 1, is_permanent=True),
        VersionDeleted("s", 1, 2, is_permanent=False),
        VersionDeleted("s", 2, 1, is_permanent=False),
        SubjectDeleted("s", is_permanent=True),
        SubjectDeleted("t", is_permanent=False),
    ],
)
def test_a_change_that_breaks_the_books_does_not_count(change: Change) -> None:
    state, counted = replay((FIRST, None), (change, 0))
    assert counted == [True, False]
    assert [each.id for each in state.versions("s")] == [1]
    assert state.next_id == 2


def test_an_id_is_not_given_again_after_its_schema_is_gone() -> None:
    state, counted = replay(
        (FIRST, None),
        (SubjectDeleted("s", is_permanent=False), 0),
        (SubjectDeleted("s", is_permanent=True), 1),
        (VersionRegistered("s", 1, 2, LONG), 2),
    )
    assert counted == [True] * 4
    assert (state.id_of(INT), state.id_of(LONG), state.next_id) == (1, 2, 3)
    assert state.schema(1) is None


CHANGES: list[Change] = [
    FIRST,
    VersionRegistered('ü "', 7, 9, SchemaText('"int"', (Reference("a.B", "b", 3),))),
    VersionDeleted("s", 1, 1, is_permanent=False),
    VersionDeleted("s", 1, 1, is_permanent=True),
    SubjectDeleted("s", is_permanent=False),
    SubjectDeleted("s", is_permanent=True),
    LevelSet("s", Compatibility.FULL_TRANSITIVE),
    LevelSet(None, Compatibility.NONE),
    LevelSet(None, None),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_record_is_read_as_it_was_written(change: Change) -> None:
    for after in (None, digest(b"", b"")):
        decided = Decided(change, after)
        assert parse(*encode(decided)) == decided


def test_a_record_looks_as_confluents_do() -> None:
    key, value = encode(Decided(FIRST, None))
    assert json.loads(key) == {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    assert json.loads(value) == {
        "subject": "s",
        "version": 1,
        "id": 1,
        "schema": '"int"',
        "deleted": False,
        "after": None,
    }


def strange() -> list[tuple[bytes | None, bytes | None]]:
    """What Confluent's registry writes, what others may, and ours with a member spoilt."""
    records: list[tuple[bytes | None, bytes | None]] = [
        (None, None),
        (b"", b""),
        (b"\xff", b"\xff"),
        (b"[]", b"[]"),
        (b"5", b"null"),
        (b"[" * 100_000, b"{}"),
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":["SCHEMA"]}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', None),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
    ]
    for change in CHANGES:
        key, value = (json.loads(each) for each in encode(Decided(change, None)))
        needed = [(key, value, name) for name in key if name in ("keytype", "subject", "version")]
        needed += [(value, key, name) for name in value if name not in ("subject", "version")]
        for where, _, name in needed:
            for wrong in ({"no": 1}, 1.5, True, "\ud800", -2):
                spoilt = {**where, name: wrong}
                if spoilt != where and not (isinstance(where[name], bool) and wrong is True):
                    pair = (spoilt, value) if where is key else (key, spoilt)
                    records.append((as_bytes(pair[0]), as_bytes(pair[1])))
    key, value = encode(Decided(FIRST, None))
    no_digests = (31 * b"0" + b"g", 31 * b"0", 32 * b"A")
    afters = [b"-1", *(b'"%s"' % each for each in no_digests)]
    records += [(key, value.replace(b'"after":null', b'"after":' + each)) for each in afters]
    return records


def as_bytes(members: Any) -> bytes:
    return json.dumps(members).encode()


def test_foreign_records_are_skipped() -> None:
    state = RegistryState()
    for key, value in strange():
        assert state.apply(key, value) is Outcome.STRANGE, (key, value)
    assert state.apply(*encode(Decided(FIRST, None))) is Outcome.COUNTS
