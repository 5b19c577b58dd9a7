"""The registry as its users see it: subjects, versions, ids and levels, read and changed.

Each change is decided on what the log says, and appended with the last record that this rests on.
If another registry was faster, the change does not count, and is decided anew.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from logbroker.schemas.avro_schema import AvroSchema, parse
from logbroker.schemas.compatibility import Compatibility, incompatibilities
from logbroker.schemas.decisions import (
    DEFAULT_LEVEL,
    deletable_versions,
    expect_deletable,
    expect_references,
    expect_room,
    expect_room_for_subject,
    expect_subject,
    expect_unreferenced,
    find_version,
    known_version,
    known_versions,
    level_in_scope,
    missing_reference,
)
from logbroker.schemas.errors import (
    CompatibilityNotConfigured,
    IncompatibleSchema,
    ReadOnly,
    SchemaNotFound,
    StoreTimeout,
    SubjectNotFound,
)
from logbroker.schemas.log_records import (
    Decided,
    LevelSet,
    SubjectDeleted,
    VersionDeleted,
    VersionRegistered,
)
from logbroker.schemas.schema_log import LogAsRead, SchemaLog
from logbroker.schemas.schema_text import Reference, RegisteredSchema, SchemaText
from logbroker.schemas.state import Outcome, RegistryState

ATTEMPTS_MAX: Final = 20
"""How often a change is decided anew: each time, another registry was faster."""

Deleted = Literal["none", "also", "only"]
"""Which subjects are listed: those in use, those deleted softly too, or these only."""

_Answer = TypeVar("_Answer")


class SchemaRegistry:
    """A schema registry on a log; safe on any threads, which may have to wait for the log.

    One that `is_read_only` raises ReadOnly instead of changing anything.
    """

    def __init__(self, log: SchemaLog, *, is_read_only: bool = False) -> None:
        self.is_read_only = is_read_only
        self._log = log

    def as_read(self) -> "SchemaRegistry":
        """The same registry for those who must not wait: LogNeeded is raised where it would."""
        return SchemaRegistry(LogAsRead(self._log), is_read_only=self.is_read_only)

    def subjects(self, prefix: str = "", *, deleted: Deleted = "none") -> list[str]:
        """The subjects whose names begin so; sorted.

        A subject is deleted when all of its versions are.
        """
        with self._log.reading() as state:
            return [
                subject
                for subject in state.subjects()
                if subject.startswith(prefix) and _is_asked_for(state.versions(subject), deleted)
            ]

    @property
    def cluster(self) -> str:
        """The id of the log's cluster; empty as long as no broker has told it."""
        return self._log.cluster

    def schemas(
        self, prefix: str = "", *, with_deleted: bool = False, latest_only: bool = False
    ) -> list[RegisteredSchema]:
        """All versions of the subjects whose names begin so, or the latest of each; sorted."""
        found: list[RegisteredSchema] = []
        with self._log.reading() as state:
            for subject in state.subjects():
                if subject.startswith(prefix):
                    known = [
                        each for each in state.versions(subject) if with_deleted >= each.is_deleted
                    ]
                    found += known[-1:] if latest_only else known
        return found

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[int]:
        """The versions of a subject, in their order.

        Raises:
            SubjectNotFound: it has none.
        """
        with self._log.reading() as state:
            return [each.version for each in known_versions(state, subject, with_deleted)]

    def version(
        self, subject: str, version: int | None = None, *, with_deleted: bool = False
    ) -> RegisteredSchema:
        """A version of a subject; the latest if none is named.

        Raises:
            SubjectNotFound: the subject has no versions.
            VersionNotFound: it has others.
        """
        with self._log.reading() as state:
            return known_version(state, subject, version, with_deleted)

    def schema(self, schema_id: int) -> SchemaText:
        """The schema of an id, which a subject has or had until it was deleted softly.

        Raises:
            SchemaNotFound: there is none, also by the newest that the log says.
            StoreUnavailable: none is known here, and the log cannot be asked.
        """
        return self._found_or_newest(lambda state: state.schema(schema_id), schema_id)

    def places(self, schema_id: int, *, with_deleted: bool = False) -> list[tuple[str, int]]:
        """Subject and version of each place where a schema is registered; sorted.

        Raises:
            SchemaNotFound: there is no schema of this id.
            StoreUnavailable: none is known here, and the log cannot be asked.
        """
        found = self._found_or_newest(lambda state: state.places(schema_id) or None, schema_id)
        return [(each.subject, each.version) for each in found if with_deleted >= each.is_deleted]

    def register(self, subject: str, new: SchemaText, normalize: bool = False) -> RegisteredSchema:
        """Make a schema the next version of a subject; the one that it has already, if it has it.

        Raises:
            InvalidSubject: nothing can have this name.
            InvalidSchema: it is no schema, or refers to what is not there.
            RegistryFull: there is no room for it.
            IncompatibleSchema: the subject's level does not let it follow those that are there.
            StoreUnavailable, StoreTimeout: the log does not take it.
        """
        expect_subject(subject)

        def decide() -> _Step[RegisteredSchema]:
            with self._log.reading() as state:
                # Before anything is looked up: if something changes later, the decision is void.
                last = state.last
            schema = self._parse(new, normalize)
            with self._log.reading() as state:
                known = find_version(state, subject, schema.text, with_deleted=False)
                if known is not None:
                    return _Step(known)
                expect_references(state, schema.text)
                expect_room(state, subject, schema.text)
                step = _registration(state, subject, schema.text, last)
                level = level_in_scope(state, subject)
                earlier = state.versions(subject)
            problems = self._incompatibilities(schema, earlier, level)
            if problems:
                raise IncompatibleSchema(subject, level.value, problems)
            return step

        return self._change(decide)

    def look_up(
        self,
        subject: str,
        schema: SchemaText,
        *,
        with_deleted: bool = False,
        normalize: bool = False,
    ) -> RegisteredSchema:
        """The latest version of a subject that is this schema.

        Raises:
            SubjectNotFound: the subject has no versions.
            InvalidSchema: it is no schema, or refers to what is not there.
            SchemaNotFound: the subject has others.
        """
        with self._log.reading() as state:
            known_versions(state, subject, with_deleted)
        text = self._parse(schema, normalize).text
        with self._log.reading() as state:
            known = find_version(state, subject, text, with_deleted=with_deleted)
        if known is None:
            raise SchemaNotFound(f"Schema not found under subject {subject!r}.")
        return known

    def check(self, subject: str, version: int | None, schema: SchemaText) -> list[str]:
        """What is incompatible between a schema and one version of a subject, by its level.

        Without a version, against what a registration would be checked with: the latest, or all
        where the level is transitive. Empty if everything is compatible.

        Raises:
            SubjectNotFound, VersionNotFound: the version that is named is not there.
            InvalidSchema: it is no schema, or refers to what is not there.
        """
        new = self._parse(schema)
        with self._log.reading() as state:
            level = level_in_scope(state, subject)
            if version is None:
                earlier = state.versions(subject)
            else:
                earlier = [known_version(state, subject, version, with_deleted=False)]
        return self._incompatibilities(new, earlier, level)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject, and its level: softly, or afterwards for good.

        Raises:
            SubjectNotFound: it has no versions.
            SubjectSoftDeleted, SubjectNotSoftDeleted: it is deleted softly already, or not yet.
            ReferenceExists: other schemas refer to one of the versions.
            StoreUnavailable, StoreTimeout: the log does not take it.
        """

        def decide() -> _Step[list[int]]:
            with self._log.reading() as state:
                known = deletable_versions(state, subject, permanent)
                for each in known:
                    expect_unreferenced(state, each, permanent)
                decided = Decided(SubjectDeleted(subject, permanent), state.last)
            return _Step([each.version for each in known], decided)

        return self._change(decide)

    def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        """Delete one version of a subject: softly, or afterwards for good; its number.

        Raises:
            SubjectNotFound, VersionNotFound: it is not there.
            SchemaVersionSoftDeleted, SchemaVersionNotSoftDeleted: it is deleted softly already, or
                not yet.
            ReferenceExists: other schemas refer to it.
            StoreUnavailable, StoreTimeout: the log does not take it.
        """

        def decide() -> _Step[int]:
            with self._log.reading() as state:
                known = known_version(state, subject, version, with_deleted=True)
                expect_deletable(known, permanent)
                expect_unreferenced(state, known, permanent)
                deletion = VersionDeleted(subject, version, known.id, permanent)
                return _Step(version, Decided(deletion, state.last))

        return self._change(decide)

    def compatibility(self, subject: str | None, *, or_global: bool = False) -> Compatibility:
        """The level of a subject, or (None) the one of all that have none of their own.

        Raises:
            CompatibilityNotConfigured: the subject has none, and the global one is not asked for.
        """
        with self._log.reading() as state:
            if subject is None or or_global:
                return level_in_scope(state, subject)
            level = state.level(subject)
        if level is None:
            raise CompatibilityNotConfigured(subject)
        return level

    def set_compatibility(self, subject: str | None, level: Compatibility) -> None:
        """Give a subject its level, or (None) one to all that have none of their own.

        Raises:
            InvalidSubject: nothing can have this name.
            RegistryFull: there is no room for another subject.
            StoreUnavailable, StoreTimeout: the log does not take it.
        """
        if subject is not None:
            expect_subject(subject)

        def decide() -> _Step[None]:
            with self._log.reading() as state:
                if state.level(subject) is level:
                    return _Step(None)
                if subject is not None:
                    expect_room_for_subject(state, subject)
                return _Step(None, Decided(LevelSet(subject, level), state.last))

        self._change(decide)

    def clear_compatibility(self, subject: str | None) -> Compatibility:
        """Take a subject's level away, or (None) the global one: the level that it was.

        Raises:
            SubjectNotFound: the subject has no level.
            StoreUnavailable, StoreTimeout: the log does not take it.
        """

        def decide() -> _Step[Compatibility]:
            with self._log.reading() as state:
                before = state.level(subject)
                if before is not None:
                    return _Step(before, Decided(LevelSet(subject, None), state.last))
            if subject is not None:
                raise SubjectNotFound(subject)
            return _Step(DEFAULT_LEVEL)

        return self._change(decide)

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """The ids of the schemas that refer to a version, and are not deleted; sorted.

        Raises:
            SubjectNotFound, VersionNotFound: it is not there.
        """
        with self._log.reading() as state:
            known_version(state, subject, version, with_deleted=True)
            referrers = list(state.referrers(subject, version))
        return sorted({each.id for each in referrers if not each.is_deleted})

    def passed_over(self) -> Mapping[Outcome, int]:
        """How many records of the log do not count, by why."""
        with self._log.reading() as state:
            return dict(state.passed_over)

    def _found_or_newest(
        self, find: Callable[[RegistryState], _Answer | None], schema_id: int
    ) -> _Answer:
        """What is known of an id, if need be after reading what others have just written."""
        with self._log.reading() as state:
            found = find(state)
        if found is None:
            # A producer that registered elsewhere may have been faster than our reading.
            self._log.catch_up()
            with self._log.reading() as state:
                found = find(state)
        if found is None:
            raise SchemaNotFound(f"Schema {schema_id} not found.")
        return found

    def _change(self, decide: "Callable[[], _Step[_Answer]]") -> _Answer:
        """Decide and append until it counts, or nothing is to be appended."""
        for _ in range(ATTEMPTS_MAX):
            step = decide()
            if step.decided is None:
                return step.answer
            if self.is_read_only:
                raise ReadOnly
            if self._log.append(step.decided):
                return step.answer
        raise StoreTimeout(f"Others changed the registry first, {ATTEMPTS_MAX} times in a row.")

    def _incompatibilities(
        self, new: AvroSchema, versions: Iterable[RegisteredSchema], level: Compatibility
    ) -> list[str]:
        live = [each for each in versions if not each.is_deleted]
        asked = live if level.is_transitive else live[-1:]
        if level is Compatibility.NONE:
            asked = []
        # One after the other: a parsed schema takes tens of times its text, and versions are many.
        earlier = ((f"version {each.version}", self._parse(each.schema).root) for each in asked)
        return incompatibilities(new.root, earlier, level)

    def _parse(self, schema: SchemaText, normalize: bool = False) -> AvroSchema:
        return parse(schema, self._referred, normalize=normalize)

    def _referred(self, reference: Reference) -> SchemaText:
        with self._log.reading() as state:
            known = state.version(reference.subject, reference.version)
        if known is None:
            raise missing_reference(reference)
        return known.schema


@dataclass(frozen=True, slots=True)
class _Step(Generic[_Answer]):
    """What to answer, once `decided` counts; at once if there is nothing to append."""

    answer: _Answer
    decided: Decided | None = None


def _is_asked_for(versions: Iterable[RegisteredSchema], deleted: Deleted) -> bool:
    is_deleted = all(each.is_deleted for each in versions)
    return deleted == "also" or is_deleted == (deleted == "only")


def _registration(
    state: RegistryState, subject: str, text: SchemaText, after: str | None
) -> "_Step[RegisteredSchema]":
    schema_id = state.id_of(text) or state.next_id
    new = VersionRegistered(subject, state.next_version(subject), schema_id, text)
    registered = RegisteredSchema(subject, new.version, schema_id, text)
    return _Step(registered, Decided(new, after))
