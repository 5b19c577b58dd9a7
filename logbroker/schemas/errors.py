"""What the schema registry refuses, grouped by what the one who asked can do.

SchemaRegistryError
├── NotFound                    ask for something that is there
│   ├── SubjectNotFound, VersionNotFound, SchemaNotFound, CompatibilityNotConfigured
│   └── SubjectSoftDeleted, SubjectNotSoftDeleted, SchemaVersionSoftDeleted,
│       SchemaVersionNotSoftDeleted
│                               delete softly first, permanently then; each once
├── IncompatibleSchema          mend the schema, or set another level for the subject
├── Unprocessable               mend the request
│   ├── InvalidSchema, InvalidVersion, InvalidCompatibility, InvalidSubject, ReferenceExists
│   └── ReadOnly                ask the registry that takes changes
└── StoreFailed                 the log will not take it at present
    ├── StoreUnavailable        ask again later: nothing was written
    ├── LogReplaced             the operator looks after the log, and starts the registry again
    └── StoreTimeout            ask again: it may have been written or not, and never is twice

`code` is what Confluent's registry answers in the same case, so that its clients understand; its
first three digits are the HTTP status.

Source: Confluent Schema Registry, "API reference", section "Errors".
"""

from collections.abc import Sequence
from typing import ClassVar

from logbroker.errors import LogbrokerError


class SchemaRegistryError(LogbrokerError):
    """The root: nothing raises it as such."""

    code: ClassVar[int]

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])


class NotFound(SchemaRegistryError):
    """What is asked for is not there, or not in the state that the request needs."""


class SubjectNotFound(NotFound):
    """No version was ever registered under the subject, or none is left."""

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
    """The subject was deleted already; only a permanent deletion is left."""

    code = 40404

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject {subject!r} was soft deleted. Set permanent=true to delete permanently."
        )


class SubjectNotSoftDeleted(NotFound):
    """A permanent deletion of a subject that is still in use."""

    code = 40405

    def __init__(self, subject: str) -> None:
        super().__init__(
            f"Subject {subject!r} was not deleted first before being permanently deleted."
        )


class SchemaVersionSoftDeleted(NotFound):
    """The version was deleted already; only a permanent deletion is left."""

    code = 40406

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject {subject!r} version {version} was soft deleted."
            " Set permanent=true to delete permanently."
        )


class SchemaVersionNotSoftDeleted(NotFound):
    """A permanent deletion of a version that is still in use."""

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
    """The schema cannot follow those that are there; `incompatibilities` has what is in the way."""

    code = 409

    def __init__(self, subject: str, level: str, incompatibilities: Sequence[str]) -> None:
        self.incompatibilities = list(incompatibilities)
        listed = "; ".join(self.incompatibilities)
        super().__init__(
            f"Schema being registered is incompatible with an earlier schema for subject"
            f" {subject!r} (compatibility {level}): {listed}"
        )


class Unprocessable(SchemaRegistryError):
    """The request is understood and cannot be met, now or later."""


class InvalidSchema(Unprocessable):
    """The text is no Avro schema, is too large, or refers to what is not there."""

    code = 42201


class InvalidVersion(Unprocessable):
    """A version that is no number from 1 on."""

    code = 42202


class InvalidCompatibility(Unprocessable):
    """A compatibility level that there is not."""

    code = 42203


class InvalidSubject(Unprocessable):
    """A name that no subject can have."""

    code = 42208


class RegistryFull(Unprocessable):
    """There is no room for another subject, version or schema."""

    code = 42209


class ReferenceExists(Unprocessable):
    """Other schemas refer to the version that was to be deleted."""

    code = 42206


class ReadOnly(Unprocessable):
    """A change that was asked of a registry that only reads."""

    code = 42205

    def __init__(self) -> None:
        super().__init__("This registry only reads; ask the one that takes changes.")


class StoreFailed(SchemaRegistryError):
    """The log will not take or give what is needed at present."""


class StoreUnavailable(StoreFailed):
    """The log does not answer; nothing was written."""

    code = 50001


class LogReplaced(StoreFailed):
    """The log is not the one that was read: it was cut, or another has its name.

    What the registry remembers may be true nowhere else, so it answers nothing any more.
    """

    code = 50001


class StoreTimeout(StoreFailed):
    """The log did not confirm in time, or others were faster again and again.

    What was to be written may be there or not; to ask again does not write it twice.
    """

    code = 50002
