"""The operations of the registry: read and change subjects, versions, ids and levels.

A change is decided on the state of the log, and appended with the digest of the last record that it
is based on. If another registry was faster, the record does not count, and the change is decided
again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar

from logbroker.schemas.avro.compatibility import Compatibility, incompatibilities
from logbroker.schemas.avro.schema import AvroSchema, parse
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.domain.decisions import (
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
from logbroker.schemas.domain.log_records import (
    Decided,
    LevelSet,
    SubjectDeleted,
    VersionDeleted,
    VersionRegistered,
)
from logbroker.schemas.domain.schema_log import LogAsRead, SchemaLog
from logbroker.schemas.domain.state import Outcome, RegisteredSchema, RegistryState
from logbroker.schemas.errors import (
    CompatibilityNotConfigured,
    IncompatibleSchema,
    ReadOnly,
    SchemaNotFound,
    StoreTimeout,
    SubjectNotFound,
)

ATTEMPTS_MAX: Final = 20
"""How often a change is decided again because another registry was faster."""

Deleted = Literal["none", "also", "only"]
"""Which subjects to list: active ones, soft-deleted ones too, or soft-deleted ones only."""

_Answer = TypeVar("_Answer")


class SchemaRegistry:
    """A schema registry on a log; thread-safe; calls may wait for the log.

    A registry that `is_read_only` raises ReadOnly for each change.
    """

    def __init__(self, log: SchemaLog, *, is_read_only: bool = False) -> None:
        self.is_read_only = is_read_only
        self._log = log

    def as_read(self) -> "SchemaRegistry":
        """The same registry for callers that must not block: raises LogNeeded instead."""
        return SchemaRegistry(LogAsRead(self._log), is_read_only=self.is_read_only)

    def subjects(self, prefix: str = "", *, deleted: Deleted = "none") -> list[str]:
        """The subjects with a prefix, sorted.

        A subject is deleted when all its versions are.
        """
        with self._log.reading() as state:
            return [
                subject
                for subject in state.subjects()
                if subject.startswith(prefix) and _is_asked_for(state.versions(subject), deleted)
            ]

    @property
    def cluster(self) -> str:
        """The id of the log's cluster; empty until a broker has reported it."""
        return self._log.cluster

    def schemas(
        self, prefix: str = "", *, with_deleted: bool = False, latest_only: bool = False
    ) -> list[RegisteredSchema]:
        """All versions of the subjects with a prefix, or the latest of each; sorted."""
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
        """The versions of a subject, in order.

        Raises:
            SubjectNotFound: the subject has no versions.
        """
        with self._log.reading() as state:
            return [each.version for each in known_versions(state, subject, with_deleted)]

    def version(
        self, subject: str, version: int | None = None, *, with_deleted: bool = False
    ) -> RegisteredSchema:
        """A version of a subject; the latest if `version` is None.

        Raises:
            SubjectNotFound: the subject has no versions.
            VersionNotFound: the subject has no such version.
        """
        with self._log.reading() as state:
            return known_version(state, subject, version, with_deleted)

    def schema(self, schema_id: int) -> SchemaText:
        """The schema of an id that a subject has, or had until a soft deletion.

        Raises:
            SchemaNotFound: there is none, up to the present end of the log.
            StoreUnavailable: it is unknown here, and the log is unreachable.
        """
        return self._found_or_newest(lambda state: state.schema(schema_id), schema_id)

    def subject_versions(
        self, schema_id: int, *, with_deleted: bool = False
    ) -> list[tuple[str, int]]:
        """Subject and version of every version by which a schema is registered; sorted.

        Raises:
            SchemaNotFound: no schema has this id.
            StoreUnavailable: it is unknown here, and the log is unreachable.
        """
        found = self._found_or_newest(
            lambda state: state.subject_versions(schema_id) or None, schema_id
        )
        return [(each.subject, each.version) for each in found if with_deleted >= each.is_deleted]

    def register(self, subject: str, new: SchemaText, normalize: bool = False) -> RegisteredSchema:
        """Register a schema as the next version of a subject, unless the subject has it already.

        Raises:
            InvalidSubject: the name is not allowed.
            InvalidSchema: the text is not a schema, or a reference is missing.
            RegistryFull: a limit is reached.
            IncompatibleSchema: the subject's level rejects it after the earlier versions.
            StoreUnavailable, StoreTimeout: the log was not written.
        """
        expect_subject(subject)

        def decide() -> _Step[RegisteredSchema]:
            with self._log.reading() as state:
                # Read first: if something changes after this, the decision is void.
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
        """The latest version of a subject with this schema.

        Raises:
            SubjectNotFound: the subject has no versions.
            InvalidSchema: the text is not a schema, or a reference is missing.
            SchemaNotFound: the subject does not have this schema.
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
        """The incompatibilities of a schema with one version of a subject, by the subject's level.

        Without a version, it is compared as for a registration: with the latest, or with all
        versions if the level is transitive. Empty if compatible.

        Raises:
            SubjectNotFound, VersionNotFound: the version does not exist.
            InvalidSchema: the text is not a schema, or a reference is missing.
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
        """Delete all versions of a subject, and its level: softly, or later permanently.

        Raises:
            SubjectNotFound: the subject has no versions.
            SubjectSoftDeleted, SubjectNotSoftDeleted: it is soft deleted already, or not yet.
            ReferenceExists: other schemas reference one of the versions.
            StoreUnavailable, StoreTimeout: the log was not written.
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
        """Delete one version of a subject, softly or later permanently; return its number.

        Raises:
            SubjectNotFound, VersionNotFound: it does not exist.
            SchemaVersionSoftDeleted, SchemaVersionNotSoftDeleted: it is soft deleted already, or
                not yet.
            ReferenceExists: other schemas reference it.
            StoreUnavailable, StoreTimeout: the log was not written.
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
        """The level of a subject, or (None) the global level.

        Raises:
            CompatibilityNotConfigured: the subject has none, and `or_global` is not set.
        """
        with self._log.reading() as state:
            if subject is None or or_global:
                return level_in_scope(state, subject)
            level = state.level(subject)
        if level is None:
            raise CompatibilityNotConfigured(subject)
        return level

    def set_compatibility(self, subject: str | None, level: Compatibility) -> None:
        """Set the level of a subject, or (None) the global level.

        Raises:
            InvalidSubject: the name is not allowed.
            RegistryFull: the limit of subjects is reached.
            StoreUnavailable, StoreTimeout: the log was not written.
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
        """Clear the level of a subject, or (None) the global level; return the cleared level.

        Raises:
            SubjectNotFound: the subject has no level.
            StoreUnavailable, StoreTimeout: the log was not written.
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
        """The ids of the schemas that reference a version and are not deleted; sorted.

        Raises:
            SubjectNotFound, VersionNotFound: it does not exist.
        """
        with self._log.reading() as state:
            known_version(state, subject, version, with_deleted=True)
            referrers = list(state.referrers(subject, version))
        return sorted({each.id for each in referrers if not each.is_deleted})

    def skipped(self) -> Mapping[Outcome, int]:
        """The number of log records that do not count, by reason."""
        with self._log.reading() as state:
            return dict(state.skipped)

    def _found_or_newest(
        self, find: Callable[[RegistryState], _Answer | None], schema_id: int
    ) -> _Answer:
        """Look up an id, again after catching up with the log if it is unknown."""
        with self._log.reading() as state:
            found = find(state)
        if found is None:
            # A producer that registered at another registry may be ahead of this one.
            self._log.catch_up()
            with self._log.reading() as state:
                found = find(state)
        if found is None:
            raise SchemaNotFound(f"Schema {schema_id} not found.")
        return found

    def _change(self, decide: "Callable[[], _Step[_Answer]]") -> _Answer:
        """Decide and append until the record counts, or there is nothing to append."""
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
        # One at a time: a parsed schema takes tens of times its text, and there may be many
        # versions.
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
    """The result once `decided` counts; at once if there is nothing to append."""

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
