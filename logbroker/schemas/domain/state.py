"""The state of a registry: the result of reading the log `_schemas` from its beginning.

A record counts only if its `after` is the digest of the last record that counted: then it was
decided on the state before it. Two registries that write at the same time read the same order, so
they agree which record counts, without a leader; the other one decides again. Records that count
are not checked again by rules that may change, such as compatibility; only consistency is checked:
ids and versions are consecutive.

A record that does not count never will: its `after` was the digest of the last record at most until
another one counted, and digests do not repeat. So a copy with repeated records, at any place, gives
the same state if each appears first in the order of the original.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.domain.log_records import (
    Change,
    LevelSet,
    SubjectDeleted,
    VersionDeleted,
    VersionRegistered,
    digest,
    parse,
)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as version `version`, from 1 on, of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText
    is_deleted: bool = False


class Outcome(StrEnum):
    """The result of applying a record."""

    COUNTS = "counts"
    REPEAT = "repeat"
    """It counted before: a copy repeats it, or its writer sent it twice."""

    LATE = "late"
    """Another registry on the same log was faster; the writer has decided again."""

    BRANCH = "branch"
    """It follows a record that does not count here: two logs were written independently."""

    STRANGE = "strange"
    """Not a record of a registry, or inconsistent."""


@dataclass(slots=True)
class _Version:
    id: int
    is_deleted: bool = False


@dataclass(slots=True)
class _Schema:
    """A schema with its id, which is never reused."""

    text: SchemaText
    subject_versions: set[tuple[str, int]] = field(default_factory=set)


class RegistryState:
    """Subjects, versions, ids and levels after `last`, the digest of the last record that counted.

    `last` is None before the first one. `skipped` counts the others by reason. Not thread-safe,
    uses no clock.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        self.skipped: Counter[Outcome] = Counter()
        # Maps each `after` that counted to the cluster of its decision. Its keys are the digests of
        # all records that counted except the last.
        self._decided_at: dict[str | None, bytes] = {}
        self._schemas: list[_Schema] = []
        self._ids: dict[SchemaText, int] = {}
        self._subjects: dict[str, dict[int, _Version]] = {}
        self._levels: dict[str | None, Compatibility] = {}
        self._referrers: dict[tuple[str, int], set[int]] = {}
        self.text_bytes = 0
        """Total size of all schemas that ever got an id: they are kept permanently."""

    def apply(self, key: bytes | None, value: bytes | None, cluster: bytes = b"") -> Outcome:
        """Apply a record decided on the log of `cluster`; returns whether it counts.

        The cluster only decides whether a record that does not count is late or of a branch.
        """
        outcome = self._apply(key, value, cluster)
        if outcome is not Outcome.COUNTS:
            self.skipped[outcome] += 1
        return outcome

    def subjects(self) -> list[str]:
        """All subjects that have a version, soft-deleted ones included; sorted."""
        return sorted(self._subjects)

    @property
    def name_count(self) -> int:
        """Subjects with a version plus subjects with a level: one with both counts twice."""
        return len(self._subjects) + len(self._levels)

    def has_subject(self, subject: str) -> bool:
        """Whether it has a version, soft-deleted ones included, or a level of its own."""
        return subject in self._subjects or subject in self._levels

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """All versions of a subject in order, soft-deleted ones included."""
        versions = self._subjects.get(subject, {})
        return [self._registered(subject, version) for version in sorted(versions)]

    def version(self, subject: str, version: int) -> RegisteredSchema | None:
        """A version of a subject, soft-deleted ones included."""
        known = version in self._subjects.get(subject, {})
        return self._registered(subject, version) if known else None

    def schema(self, schema_id: int) -> SchemaText | None:
        """The schema of an id, if a subject has it, soft-deleted ones included."""
        if not 1 <= schema_id <= len(self._schemas):
            return None
        known = self._schemas[schema_id - 1]
        return known.text if known.subject_versions else None

    def subject_versions(self, schema_id: int) -> list[RegisteredSchema]:
        """Where a schema is registered, soft-deleted versions included; sorted."""
        if not 1 <= schema_id <= len(self._schemas):
            return []
        return [
            self._registered(*each)
            for each in sorted(self._schemas[schema_id - 1].subject_versions)
        ]

    def id_of(self, schema: SchemaText) -> int | None:
        """The id that a schema has, or had before its permanent deletion."""
        return self._ids.get(schema)

    @property
    def next_id(self) -> int:
        """The id of the next new schema."""
        return len(self._schemas) + 1

    def next_version(self, subject: str) -> int:
        """The version of the next schema of a subject."""
        return max(self._subjects.get(subject, {}), default=0) + 1

    def level(self, subject: str | None) -> Compatibility | None:
        """The level set for a subject, or (None) the global level."""
        return self._levels.get(subject)

    def referrers(self, subject: str, version: int) -> Iterator[RegisteredSchema]:
        """Every version that references this one, soft-deleted ones included."""
        for schema_id in sorted(self._referrers.get((subject, version), ())):
            yield from self.subject_versions(schema_id)

    def _apply(self, key: bytes | None, value: bytes | None, cluster: bytes) -> Outcome:
        if key is None or value is None or (decided := parse(key, value)) is None:
            return Outcome.STRANGE
        own = digest(key, value)
        if decided.after != self.last:
            return self._why_not(own, decided.after, cluster)
        if not self._fits(decided.change):
            return Outcome.STRANGE
        self._change(decided.change)
        self._decided_at[self.last] = cluster
        self.last = own
        return Outcome.COUNTS

    def _why_not(self, own: str, after: str | None, cluster: bytes) -> Outcome:
        if own == self.last or own in self._decided_at:
            return Outcome.REPEAT
        is_late = after in self._decided_at and self._decided_at[after] == cluster
        return Outcome.LATE if is_late else Outcome.BRANCH

    def _registered(self, subject: str, version: int) -> RegisteredSchema:
        known = self._subjects[subject][version]
        text = self._schemas[known.id - 1].text
        return RegisteredSchema(subject, version, known.id, text, known.is_deleted)

    def _fits(self, change: Change) -> bool:
        """Whether a change is consistent with the state: anyone may write to the log."""
        match change:
            case VersionRegistered():
                expected = self._ids.get(change.schema, self.next_id)
                return change.id == expected and change.version == self.next_version(change.subject)
            case VersionDeleted():
                known = self._subjects.get(change.subject, {}).get(change.version)
                return known == _Version(change.id, change.is_permanent)
            case SubjectDeleted():
                versions = self._subjects.get(change.subject, {}).values()
                return any(each.is_deleted == change.is_permanent for each in versions) and (
                    not change.is_permanent or all(each.is_deleted for each in versions)
                )
            case LevelSet():
                return True

    def _change(self, change: Change) -> None:
        match change:
            case VersionRegistered():
                self._register(change)
            case VersionDeleted():
                self._delete(change.subject, change.version, change.is_permanent)
            case SubjectDeleted():
                for version in list(self._subjects[change.subject]):
                    self._delete(change.subject, version, change.is_permanent)
                self._levels.pop(change.subject, None)
            case LevelSet(subject, None):
                self._levels.pop(subject, None)
            case LevelSet(subject, level) if level is not None:
                self._levels[subject] = level

    def _register(self, change: VersionRegistered) -> None:
        if change.id == self.next_id:
            self._schemas.append(_Schema(change.schema))
            self.text_bytes += change.schema.size_bytes
            self._ids[change.schema] = change.id
            for reference in change.schema.references:
                self._referrers.setdefault(_subject_version(reference), set()).add(change.id)
        self._schemas[change.id - 1].subject_versions.add((change.subject, change.version))
        self._subjects.setdefault(change.subject, {})[change.version] = _Version(change.id)

    def _delete(self, subject: str, version: int, is_permanent: bool) -> None:
        versions = self._subjects[subject]
        if not is_permanent:
            versions[version].is_deleted = True
            return
        known = versions.pop(version)
        self._schemas[known.id - 1].subject_versions.discard((subject, version))
        if not versions:
            del self._subjects[subject]


def _subject_version(reference: Reference) -> tuple[str, int]:
    return reference.subject, reference.version
