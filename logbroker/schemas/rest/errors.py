"""Errors of the REST interface itself.

SchemaRegistryError
├── Unprocessable
│   ├── InvalidMode             the mode does not exist
│   └── OperationNotPermitted   supported by Confluent's registry, not by this one
└── RequestRejected             correct the request, or retry later (503)
"""

from collections.abc import Mapping

from logbroker.schemas.errors import SchemaRegistryError, Unprocessable


class InvalidMode(Unprocessable):
    """The mode does not exist."""

    code = 42204


class OperationNotPermitted(Unprocessable):
    """The client may not choose this id, version or mode."""

    code = 42205


class RequestRejected(SchemaRegistryError):
    """A request rejected with an HTTP status, which is also its code."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = status  # type: ignore[misc]
        self.headers = dict(headers or {})
