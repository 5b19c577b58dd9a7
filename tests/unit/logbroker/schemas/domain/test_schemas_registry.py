"""Registering, looking up, deleting and levels; and registries that race."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.schemas import errors
from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.domain.log_records import (
    Change,
    Decided,
    LevelSet,
    SubjectDeleted,
    VersionDeleted,
    VersionRegistered,
    parse,
)
from logbroker.schemas.domain.registry import ATTEMPTS_MAX, SchemaRegistry
from logbroker.schemas.domain.state import Outcome, RegisteredSchema, RegistryState
from tests.support.property_examples import examples
from tests.support.schemas.memory_log import MemoryLog, Written

INT = SchemaText('"int"')
LONG = SchemaText('"long"')
TEXT = SchemaText('"string"')


@pytest.fixture
def registry() -> SchemaRegistry:
    return SchemaRegistry(MemoryLog())


def test_the_first_schema_gets_the_first_id_and_version(registry: SchemaRegistry) -> None:
    assert registry.register("s", INT) == RegisteredSchema("s", 1, 1, INT)
    assert registry.version("s") == registry.version("s", 1) == RegisteredSchema("s", 1, 1, INT)
    assert registry.schema(1) == INT


def test_a_schema_registered_again_stays_as_it_is(registry: SchemaRegistry) -> None:
    first = registry.register("s", INT)
    assert registry.register("s", SchemaText(' {"type": "int"} ')) == first
    assert registry.versions("s") == [1]


def test_a_schema_has_one_id_in_all_subjects(registry: SchemaRegistry) -> None:
    registry.register("s", LONG)
    assert registry.register("t", INT).id == 2
    assert registry.register("t", LONG) == RegisteredSchema("t", 2, 1, LONG)
    assert registry.subject_versions(1) == [("s", 1), ("t", 2)]


def test_references_are_sorted_when_a_schema_is_to_be_normalized(registry: SchemaRegistry) -> None:
    for name in ("A", "B"):
        registry.register(name, SchemaText(f'{{"type":"fixed","name":"{name}","size":1}}'))
    both = (Reference("B", "B", 1), Reference("A", "A", 1))
    new = SchemaText('["A","B"]', both)
    normal = registry.register("s", new, normalize=True)
    assert normal.schema.references == both[::-1]
    assert registry.look_up("s", new, normalize=True) == normal
    with pytest.raises(errors.SchemaNotFound):
        registry.look_up("s", new)


def test_an_incompatible_schema_is_refused_with_what_is_in_the_way(
    registry: SchemaRegistry,
) -> None:
    registry.register("s", LONG)
    with pytest.raises(errors.IncompatibleSchema) as refused:
        registry.register("s", INT)
    problem = (
        "/: reader needs int, writer has long"
        " (TYPE_MISMATCH; reader is the new schema, writer is version 1)"
    )
    assert refused.value.incompatibilities == [problem]
    assert "BACKWARD" in str(refused.value)
    assert problem in str(refused.value)
    assert (refused.value.code, refused.value.status) == (409, 409)
    assert registry.versions("s") == [1]
    assert registry.check("s", None, INT) == registry.check("s", 1, INT) == [problem]


def test_only_a_transitive_level_looks_at_all_versions(registry: SchemaRegistry) -> None:
    double = SchemaText('"double"')
    registry.set_compatibility("s", Compatibility.NONE)
    for schema in (TEXT, INT, LONG):
        registry.register("s", schema)
    registry.set_compatibility("s", Compatibility.BACKWARD_TRANSITIVE)
    assert [each[-10:] for each in registry.check("s", None, double)] == ["version 1)"]
    assert registry.check("s", 2, double) == []
    registry.set_compatibility("s", Compatibility.BACKWARD)
    assert registry.register("s", double).version == 4


def test_without_any_version_everything_is_compatible(registry: SchemaRegistry) -> None:
    assert registry.check("s", None, INT) == []
    with pytest.raises(errors.SubjectNotFound):
        registry.check("s", 1, INT)


def test_deleted_versions_do_not_count_for_compatibility(registry: SchemaRegistry) -> None:
    registry.register("s", TEXT)
    registry.delete_version("s", 1)
    assert registry.register("s", INT).version == 2


def test_a_subject_inherits_the_global_level_until_it_has_its_own(
    registry: SchemaRegistry,
) -> None:
    assert registry.compatibility(None) is Compatibility.BACKWARD
    registry.set_compatibility(None, Compatibility.FULL)
    with pytest.raises(errors.CompatibilityNotConfigured):
        registry.compatibility("s")
    assert registry.compatibility("s", or_global=True) is Compatibility.FULL
    registry.set_compatibility("s", Compatibility.NONE)
    assert registry.compatibility("s") is Compatibility.NONE
    assert registry.clear_compatibility("s") is Compatibility.NONE
    assert registry.compatibility("s", or_global=True) is Compatibility.FULL
    assert registry.clear_compatibility(None) is Compatibility.FULL
    assert registry.compatibility(None) is Compatibility.BACKWARD
    with pytest.raises(errors.SubjectNotFound):
        registry.clear_compatibility("s")


def test_a_version_deleted_softly_is_seen_only_by_those_who_ask(registry: SchemaRegistry) -> None:
    registry.register("s", INT)
    registry.register("s", LONG)
    assert registry.delete_version("s", 2) == 2
    assert registry.versions("s") == [1]
    assert registry.versions("s", with_deleted=True) == [1, 2]
    assert registry.version("s") == RegisteredSchema("s", 1, 1, INT)
    deleted = registry.version("s", 2, with_deleted=True)
    assert deleted == RegisteredSchema("s", 2, 2, LONG, is_deleted=True)
    assert registry.schema(2) == LONG
    assert registry.subject_versions(2) == []
    assert registry.subject_versions(2, with_deleted=True) == [("s", 2)]
    with pytest.raises(errors.VersionNotFound):
        registry.version("s", 2)
    with pytest.raises(errors.SchemaNotFound):
        registry.look_up("s", LONG)
    assert registry.look_up("s", LONG, with_deleted=True) == deleted


@pytest.mark.parametrize("permanent", [False, True])
def test_a_deleted_schema_that_comes_back_has_its_id_and_a_new_version(
    registry: SchemaRegistry, permanent: bool
) -> None:
    for schema in (INT, LONG):
        registry.register("s", schema)
    registry.delete_version("s", 1)
    if permanent:
        registry.delete_version("s", 1, permanent=True)
    registry.set_compatibility("s", Compatibility.NONE)
    assert registry.register("s", INT) == RegisteredSchema("s", 3, 1, INT)
    assert registry.register("s", TEXT).id == 3


def test_what_is_deleted_for_good_is_gone(registry: SchemaRegistry) -> None:
    registry.register("s", INT)
    assert registry.delete_subject("s") == [1]
    assert registry.subjects() == []
    assert registry.subjects(deleted="also") == registry.subjects(deleted="only") == ["s"]
    assert registry.delete_subject("s", permanent=True) == [1]
    assert registry.subjects(deleted="also") == []
    with pytest.raises(errors.SchemaNotFound):
        registry.schema(1)
    assert registry.register("s", LONG) == RegisteredSchema("s", 1, 2, LONG)
    assert registry.register("t", INT).id == 1


def test_a_subject_takes_its_level_with_it(registry: SchemaRegistry) -> None:
    registry.register("s", INT)
    registry.set_compatibility("s", Compatibility.NONE)
    registry.delete_subject("s")
    with pytest.raises(errors.CompatibilityNotConfigured):
        registry.compatibility("s")


def test_deletions_go_from_soft_to_permanent(registry: SchemaRegistry) -> None:
    registry.register("s", INT)
    registry.register("s", LONG)
    refusals: list[tuple[type[Exception], Callable[[], object]]] = [
        (errors.SubjectNotFound, partial(registry.delete_subject, "t")),
        (errors.SubjectNotFound, partial(registry.delete_version, "t", 1)),
        (errors.VersionNotFound, partial(registry.delete_version, "s", 3)),
        (errors.SubjectNotSoftDeleted, partial(registry.delete_subject, "s", permanent=True)),
        (
            errors.SchemaVersionNotSoftDeleted,
            partial(registry.delete_version, "s", 1, permanent=True),
        ),
    ]
    for refused, delete in refusals:
        with pytest.raises(refused):
            delete()
    registry.delete_version("s", 1)
    with pytest.raises(errors.SchemaVersionSoftDeleted):
        registry.delete_version("s", 1)
    assert registry.delete_subject("s") == [2]
    with pytest.raises(errors.SubjectSoftDeleted):
        registry.delete_subject("s")
    assert registry.delete_subject("s", permanent=True) == [1, 2]


USER = SchemaText(
    '{"type":"record","name":"User","fields":[{"name":"id","type":"Id"}]}',
    (Reference("Id", "id", 1),),
)


@pytest.fixture
def referring(registry: SchemaRegistry) -> SchemaRegistry:
    registry.register("id", SchemaText('{"type":"fixed","name":"Id","size":16}'))
    registry.register("user", USER)
    return registry


def test_what_others_refer_to_is_not_deleted(referring: SchemaRegistry) -> None:
    assert referring.referenced_by("id", 1) == [2]
    for delete in (
        partial(referring.delete_version, "id", 1),
        partial(referring.delete_subject, "id"),
    ):
        with pytest.raises(errors.ReferenceExists, match="version 1 of 'user'"):
            delete()
    referring.delete_subject("user")
    assert referring.referenced_by("id", 1) == []
    referring.delete_subject("id")
    with pytest.raises(errors.InvalidSchema, match="does not exist"):
        referring.register("other", USER)
    # Somebody may still read what the deleted schema wrote.
    with pytest.raises(errors.ReferenceExists):
        referring.delete_subject("id", permanent=True)
    referring.delete_subject("user", permanent=True)
    assert referring.delete_subject("id", permanent=True) == [1]


def test_a_reference_to_nothing_is_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(errors.InvalidSchema, match="version 1 of subject 'id'"):
        registry.register("user", USER)


def test_subjects_are_found_by_how_they_begin(registry: SchemaRegistry) -> None:
    for subject in ("b-value", "a-value", "a-key"):
        registry.register(subject, INT)
    assert registry.subjects() == ["a-key", "a-value", "b-value"]
    assert registry.subjects("a-") == ["a-key", "a-value"]


@pytest.mark.parametrize("subject", ["", "a\nb", "\ud800", "x" * 1_001, "\u20ac" * 334])
def test_a_subject_that_cannot_be_is_refused(registry: SchemaRegistry, subject: str) -> None:
    with pytest.raises(errors.InvalidSubject):
        registry.register(subject, INT)
    with pytest.raises(errors.InvalidSubject):
        registry.set_compatibility(subject, Compatibility.NONE)


@pytest.mark.parametrize("schema_id", [0, -1, 1, 2**40])
def test_an_id_that_there_is_not_is_not_found(registry: SchemaRegistry, schema_id: int) -> None:
    for ask in (registry.schema, registry.subject_versions):
        with pytest.raises(errors.SchemaNotFound):
            ask(schema_id)


def test_an_id_that_another_registry_has_just_given_is_found() -> None:
    written: Written = []
    ours, theirs = SchemaRegistry(MemoryLog(written)), SchemaRegistry(MemoryLog(written))
    given = theirs.register("s", INT).id
    assert ours.schema(given) == INT


def test_a_registry_that_lost_the_race_decides_again() -> None:
    written: Written = []
    log = MemoryLog(written)
    ours, theirs = SchemaRegistry(log), SchemaRegistry(MemoryLog(written))
    log.meanwhile = [partial(theirs.register, "s", LONG), partial(theirs.register, "s", INT)]
    with pytest.raises(errors.IncompatibleSchema):
        ours.register("s", TEXT)
    assert ours.versions("s") == theirs.versions("s") == [1, 2]


def test_a_level_that_was_set_meanwhile_holds() -> None:
    written: Written = []
    log = MemoryLog(written)
    ours, theirs = SchemaRegistry(log), SchemaRegistry(MemoryLog(written))
    ours.register("s", INT)
    log.meanwhile = [partial(theirs.set_compatibility, None, Compatibility.FULL)]
    with pytest.raises(errors.IncompatibleSchema, match="FULL"):
        ours.register("s", LONG)


def test_what_was_deleted_meanwhile_cannot_be_referred_to(referring: SchemaRegistry) -> None:
    log = MemoryLog()
    ours, theirs = SchemaRegistry(log), SchemaRegistry(MemoryLog(log.written))
    ours.register("id", referring.schema(1))
    theirs.schema(1)
    log.meanwhile = [partial(theirs.delete_subject, "id")]
    with pytest.raises(errors.InvalidSchema, match="does not exist"):
        ours.register("user", USER)


def test_a_registry_that_is_always_slower_gives_up() -> None:
    written: Written = []
    theirs = SchemaRegistry(MemoryLog(written))

    class Slow(MemoryLog):
        def append(self, decided: Decided) -> bool:
            theirs.register(f"t{len(written)}", INT)
            return super().append(decided)

    with pytest.raises(errors.StoreTimeout, match=f"{ATTEMPTS_MAX} times"):
        SchemaRegistry(Slow(written)).register("s", INT)
    assert "s" not in theirs.subjects()


def test_one_that_only_reads_changes_nothing_and_knows_what_others_change() -> None:
    log = MemoryLog()
    SchemaRegistry(log).register("s", INT)
    SchemaRegistry(log).set_compatibility("s", Compatibility.FULL)
    written = list(log.written)
    reader = SchemaRegistry(log, is_read_only=True)
    changes: list[Callable[[], object]] = [
        partial(reader.register, "t", LONG),
        partial(reader.delete_version, "s", 1),
        partial(reader.delete_subject, "s"),
        partial(reader.set_compatibility, None, Compatibility.NONE),
        partial(reader.clear_compatibility, "s"),
    ]
    for change in changes:
        with pytest.raises(errors.ReadOnly):
            change()
    assert log.written == written
    # What is there already is no change.
    assert reader.register("s", INT).id == 1
    reader.set_compatibility("s", Compatibility.FULL)
    assert reader.clear_compatibility(None) is Compatibility.BACKWARD


Move = Callable[[SchemaRegistry], object]

SUBJECTS = st.sampled_from(["a", "b"])
SCHEMAS = st.sampled_from([INT, LONG, TEXT, SchemaText('"bytes"')])
MOVES: st.SearchStrategy[Move] = st.one_of(
    st.builds(lambda s, t: lambda r: r.register(s, t), SUBJECTS, SCHEMAS),
    st.builds(lambda s, t: lambda r: r.register(s, t), SUBJECTS, SCHEMAS),
    st.builds(
        lambda s, v, p: lambda r: r.delete_version(s, v, permanent=p),
        SUBJECTS,
        st.integers(1, 3),
        st.booleans(),
    ),
    st.builds(lambda s, p: lambda r: r.delete_subject(s, permanent=p), SUBJECTS, st.booleans()),
    st.builds(
        lambda s, level: lambda r: r.set_compatibility(s, level),
        SUBJECTS,
        st.sampled_from(Compatibility),
    ),
)


class Racers:
    """Two registries on one log, and all that they answered."""

    def __init__(self, writes_twice: bool) -> None:
        self.written: Written = []
        self.logs = [MemoryLog(self.written), MemoryLog(self.written, writes_twice=writes_twice)]
        self.registries = [SchemaRegistry(log) for log in self.logs]
        self.ids: dict[SchemaText, set[int]] = {}

    def move(self, who: int, move: Move) -> None:
        try:
            answer = move(self.registries[who])
        except (errors.NotFound, errors.IncompatibleSchema):
            return
        if isinstance(answer, RegisteredSchema):
            self.ids.setdefault(answer.schema, set()).add(answer.id)


def knowledge(log: MemoryLog) -> object:
    log.catch_up()
    with log.reading() as state:
        subjects = {each: state.versions(each) for each in state.subjects()}
        levels = {each: state.level(each) for each in ("a", "b")}
        schemas = [state.schema(n) for n in range(1, state.next_id)]
        return subjects, levels, schemas


def alone(written: Written) -> MemoryLog:
    """The log of one registry that is asked for all that counts, one after the other."""
    log, state = MemoryLog(), RegistryState()
    registry = SchemaRegistry(log)
    for record in written:
        if state.apply(*record) is Outcome.COUNTS:
            decided = parse(*record)
            assert decided is not None
            ask(registry, decided.change)
    return log


def skipped(written: Written) -> set[Outcome]:
    state = RegistryState()
    return {state.apply(*record) for record in written} - {Outcome.COUNTS}


def ask(registry: SchemaRegistry, change: Change) -> None:
    match change:
        case VersionRegistered():
            registry.register(change.subject, change.schema)
        case VersionDeleted():
            registry.delete_version(change.subject, change.version, permanent=change.is_permanent)
        case SubjectDeleted():
            registry.delete_subject(change.subject, permanent=change.is_permanent)
        case LevelSet(subject, level):
            assert level is not None
            registry.set_compatibility(subject, level)


@pytest.mark.long
@given(
    st.lists(st.tuples(st.integers(0, 1), MOVES, st.lists(MOVES, max_size=3)), max_size=15),
    st.booleans(),
)
@examples(300)
def test_registries_that_race_agree(
    turns: list[tuple[int, Move, list[Move]]], writes_twice: bool
) -> None:
    racers = Racers(writes_twice)
    for who, move, meanwhile in turns:
        racers.logs[who].meanwhile = [partial(racers.move, 1 - who, each) for each in meanwhile]
        racers.move(who, move)
        racers.logs[who].meanwhile = []
    assert knowledge(racers.logs[0]) == knowledge(racers.logs[1])
    # One that starts now comes to know the same.
    assert knowledge(MemoryLog(racers.written)) == knowledge(racers.logs[0])
    assert skipped(racers.written) <= {Outcome.REPEAT, Outcome.LATE}
    # Every decision considered all earlier records that count.
    assert knowledge(alone(racers.written)) == knowledge(racers.logs[0])
    # Each schema has one id for ever, and the ids are dense.
    ids = [each for known in racers.ids.values() for each in known]
    assert sorted(ids) == list(range(1, len(racers.ids) + 1))
