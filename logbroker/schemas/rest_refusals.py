"""What the registry's REST interface refuses before, or instead of, asking the registry.

SchemaRegistryError
├── Unprocessable
│   ├── InvalidMode             there is no such mode
│   └── OperationNotPermitted   Confluent's registry has it, this one does not
└── Refused                     the request is none: mend it, or ask again later (503)
"""

from collections.abc import Mapping

from logbroker.schemas.errors import SchemaRegistryError, Unprocessable


class InvalidMode(Unprocessable):
    """A mode that there is not."""

    code = 42204


class OperationNotPermitted(Unprocessable):
    """An id, a version or a mode that the one who asks cannot choose here."""

    code = 42205


class Refused(SchemaRegistryError):
    """A request that HTTP has a status for: its code is that status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = status  # type: ignore[misc]
        self.headers = dict(headers or {})
