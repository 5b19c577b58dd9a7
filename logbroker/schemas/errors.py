"""Errors of the schema registry, grouped by what the client can do.

SchemaRegistryError
├── NotFound                    request something that exists
│   ├── SubjectNotFound, VersionNotFound, SchemaNotFound, CompatibilityNotConfigured
│   └── SubjectSoftDeleted, SubjectNotSoftDeleted, SchemaVersionSoftDeleted,
│       SchemaVersionNotSoftDeleted
│                               delete softly first, then permanently; each once
├── IncompatibleSchema          correct the schema, or set another level for the subject
├── Unprocessable               correct the request
│   ├── InvalidSchema, InvalidVersion, InvalidCompatibility, InvalidSubject, ReferenceExists
│   └── ReadOnly                send the request to the registry that accepts changes
└── StoreFailed                 the log cannot be read or written at present
    ├── StoreUnavailable        retry later: nothing was written
    ├── LogReplaced             the operator repairs the log and restarts the registry
    └── StoreTimeout            retry: the change may be written, and is never written twice

`code` is the error code of Confluent's registry in the same case; its first three digits are the
HTTP status.

Source: Confluent Schema Registry, "API reference", section "Errors".
"""

from collections.abc import Sequence
from typing import ClassVar

from logbroker.errors import LogbrokerError


class SchemaRegistryError(LogbrokerError):
    """The root; not raised itself."""

    code: ClassVar[int]

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


class NotFound(SchemaRegistryError):
    """The requested item does not exist, or is not in the state that the request requires."""


class SubjectNotFound(NotFound):
    """The subject has no versions."""

    code = 40401

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject {subject!r} not found.")


class VersionNotFound(NotFound):
    """The subject has no such version."""

    code = 40402

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(f"Version {version} of subject {subject!r} not found.")


class SchemaNotFound(NotFound):
    """No schema has the id, or the subject does not have the schema."""

    code = 40403


class SubjectSoftDeleted(NotFound):
    """The subject is soft deleted already; only a permanent deletion is possible."""

    code = 40404

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject {subject!r} was soft deleted. Set permanent=true to delete permanently."
        )


class SubjectNotSoftDeleted(NotFound):
    """A permanent deletion of a subject that is not soft deleted."""

    code = 40405

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject {subject!r} was not deleted first before being permanently deleted."
        )


class SchemaVersionSoftDeleted(NotFound):
    """The version is soft deleted already; only a permanent deletion is possible."""

    code = 40406

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject {subject!r} version {version} was soft deleted."
            " Set permanent=true to delete permanently."
        )


class SchemaVersionNotSoftDeleted(NotFound):
    """A permanent deletion of a version that is not soft deleted."""

    code = 40407

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject {subject!r} version {version} was not deleted first"
            " before being permanently deleted."
        )


class CompatibilityNotConfigured(NotFound):
    """The subject has no level of its own."""

    code = 40408

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject {subject!r} does not have subject-level compatibility configured."
        )


class IncompatibleSchema(SchemaRegistryError):
    """The schema is incompatible with earlier ones; `incompatibilities` lists the reasons."""

    code = 409

    def __init__(self, subject: str, level: str, incompatibilities: Sequence[str]) -> None:
        self.incompatibilities = list(incompatibilities)
        listed = "; ".join(self.incompatibilities)
        super().__init__(
            f"Schema being registered is incompatible with an earlier schema for subject"
            f" {subject!r} (compatibility {level}): {listed}"
        )


class Unprocessable(SchemaRegistryError):
    """The request is well formed but can never succeed."""


class InvalidSchema(Unprocessable):
    """The text is not an Avro schema, is too large, or references a missing version."""

    code = 42201


class InvalidVersion(Unprocessable):
    """The version is not a number from 1 on."""

    code = 42202


class InvalidCompatibility(Unprocessable):
    """The compatibility level does not exist."""

    code = 42203


class InvalidSubject(Unprocessable):
    """The name cannot be the name of a subject."""

    code = 42208


class RegistryFull(Unprocessable):
    """A limit of subjects, versions or sizes is reached."""

    code = 42209


class ReferenceExists(Unprocessable):
    """Other schemas reference the version to delete."""

    code = 42206


class ReadOnly(Unprocessable):
    """A change request to a read-only registry."""

    code = 42205

    def __init__(self) -> None:
        super().__init__("This registry only reads; ask the one that takes changes.")


class StoreFailed(SchemaRegistryError):
    """The log cannot be read or written at present."""


class StoreUnavailable(StoreFailed):
    """The log is unreachable; nothing was written."""

    code = 50001


class LogReplaced(StoreFailed):
    """The log differs from the one that was read: it was truncated or replaced.

    What the registry has in memory may exist nowhere else, so it rejects all requests.
    """

    code = 50001


class StoreTimeout(StoreFailed):
    """The log did not confirm in time, or other writers were faster several times in a row.

    The change may be written or not; a retry does not write it twice.
    """

    code = 50002
