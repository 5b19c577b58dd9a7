"""Checks of look-ups, registrations and deletions against the state of a registry."""

from typing import Final

from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.domain.state import RegisteredSchema, RegistryState
from logbroker.schemas.errors import (
    InvalidSchema,
    InvalidSubject,
    ReferenceExists,
    RegistryFull,
    SchemaVersionNotSoftDeleted,
    SchemaVersionSoftDeleted,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
)

DEFAULT_LEVEL: Final = Compatibility.BACKWARD
"""The level when none is set, as in Confluent's registry."""

SUBJECT_BYTES_MAX: Final = 1_000
"""Length of a subject in UTF-8; in a URL each byte may take three characters, and servers accept
eight thousand.
"""


NAMES_MAX: Final = 100_000
"""Subjects that have versions, plus subjects that have levels."""

VERSIONS_MAX: Final = 1_000
"""Versions of one subject."""

SUBJECT_TEXT_BYTES_MAX: Final = 8_000_000
"""Total size of the versions of one subject: a transitive check reads all of them."""

KEPT_TEXT_BYTES_MAX: Final = 256_000_000
"""Total size of all schemas: they are kept in memory, deleted ones included."""


def known_versions(
    state: RegistryState, subject: str, with_deleted: bool
) -> list[RegisteredSchema]:
    """The versions of a subject, in order.

    Raises:
        SubjectNotFound: the subject has no versions.
    """
    known = [each for each in state.versions(subject) if with_deleted >= each.is_deleted]
    if not known:
        raise SubjectNotFound(subject)
    return known


def known_version(
    state: RegistryState, subject: str, version: int | None, with_deleted: bool
) -> RegisteredSchema:
    """A version of a subject; the latest if `version` is None.

    Raises:
        SubjectNotFound: the subject has no versions.
        VersionNotFound: the subject has no such version.
    """
    known = known_versions(state, subject, with_deleted)
    if version is None:
        return known[-1]
    for each in known:
        if each.version == version:
            return each
    raise VersionNotFound(subject, version)


def expect_room(state: RegistryState, subject: str, text: SchemaText) -> None:
    """Check that a subject may get one more version.

    Raises:
        RegistryFull: a limit is reached.
    """
    expect_room_for_subject(state, subject)
    earlier = state.versions(subject)
    if len(earlier) >= VERSIONS_MAX:
        raise RegistryFull(
            f"The subject {subject!r} has {len(earlier)} versions; allowed are {VERSIONS_MAX}."
        )
    size = text.size_bytes + sum(each.schema.size_bytes for each in earlier)
    if size > SUBJECT_TEXT_BYTES_MAX:
        raise RegistryFull(
            f"The versions of subject {subject!r} would have {size} bytes; allowed are"
            f" {SUBJECT_TEXT_BYTES_MAX}."
        )
    size = text.size_bytes + state.text_bytes
    if state.id_of(text) is None and size > KEPT_TEXT_BYTES_MAX:
        raise RegistryFull(
            f"All schemas would have {size} bytes; allowed are {KEPT_TEXT_BYTES_MAX}."
        )


def expect_room_for_subject(state: RegistryState, subject: str) -> None:
    """Check that a subject exists or may be created.

    Raises:
        RegistryFull: the limit of subjects is reached.
    """
    if state.name_count >= NAMES_MAX and not state.has_subject(subject):
        raise RegistryFull(
            f"There are {state.name_count} subjects with versions or levels; allowed are"
            f" {NAMES_MAX}."
        )


def find_version(
    state: RegistryState, subject: str, text: SchemaText, *, with_deleted: bool
) -> RegisteredSchema | None:
    """The latest version of a subject with this schema, or None."""
    schema_id = state.id_of(text)
    found = None
    for each in state.versions(subject):
        if each.id == schema_id and with_deleted >= each.is_deleted:
            found = each
    return found


def expect_references(state: RegistryState, text: SchemaText) -> None:
    """Check that a new schema references no deleted version.

    Raises:
        InvalidSchema: a referenced version is deleted.
    """
    for reference in text.references:
        known = state.version(reference.subject, reference.version)
        if known is not None and known.is_deleted:
            raise missing_reference(reference)


def missing_reference(reference: Reference) -> InvalidSchema:
    """The error for a reference to a version that does not exist."""
    return InvalidSchema(
        f"The reference {reference.name!r} to version {reference.version} of subject"
        f" {reference.subject!r}, which does not exist."
    )


def level_in_scope(state: RegistryState, subject: str | None) -> Compatibility:
    """The level that applies to a subject: its own, or else the global one."""
    return state.level(subject) or state.level(None) or DEFAULT_LEVEL


def deletable_versions(
    state: RegistryState, subject: str, permanent: bool
) -> list[RegisteredSchema]:
    """The versions that the deletion of a subject deletes.

    Raises:
        SubjectNotFound: the subject has no versions.
        SubjectSoftDeleted, SubjectNotSoftDeleted: the subject is soft deleted already, or not yet.
    """
    known = known_versions(state, subject, with_deleted=True)
    live = [each for each in known if not each.is_deleted]
    if permanent and live:
        raise SubjectNotSoftDeleted(subject)
    if not permanent and not live:
        raise SubjectSoftDeleted(subject)
    return known if permanent else live


def expect_deletable(known: RegisteredSchema, permanent: bool) -> None:
    """Check that a version is in the state that its deletion requires.

    Raises:
        SchemaVersionSoftDeleted, SchemaVersionNotSoftDeleted: the version is not.
    """
    if permanent and not known.is_deleted:
        raise SchemaVersionNotSoftDeleted(known.subject, known.version)
    if not permanent and known.is_deleted:
        raise SchemaVersionSoftDeleted(known.subject, known.version)


def expect_unreferenced(state: RegistryState, known: RegisteredSchema, permanent: bool) -> None:
    """Check that no schema references a version that is to be deleted.

    A soft-deleted schema still needs its references, until it is deleted permanently.

    Raises:
        ReferenceExists: a schema references the version.
    """
    for each in state.referrers(known.subject, known.version):
        if permanent or not each.is_deleted:
            raise ReferenceExists(
                f"One or more references exist to version {known.version} of subject"
                f" {known.subject!r}: version {each.version} of {each.subject!r}."
            )


def expect_subject(subject: str) -> None:
    """Check the name of a subject.

    Raises:
        InvalidSubject: the name is empty, too long or not printable.
    """
    size = len(subject.encode(errors="replace"))
    if not 0 < size <= SUBJECT_BYTES_MAX or not subject.isprintable():
        raise InvalidSubject(
            f"The subject {subject[:100]!r} is not allowed: must be printable characters, of 1 to"
            f" {SUBJECT_BYTES_MAX} bytes in UTF-8."
        )
