"""Lookup of the OpenAPI operation of a request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from starlette.routing import compile_path


@dataclass(frozen=True, slots=True)
class _Operation:
    method: str
    path: re.Pattern[str]
    id: str


class OperationTable:
    """Finds operations by method and path, also for requests that reached no route."""

    def __init__(self, operations: tuple[_Operation, ...]) -> None:
        self._operations = operations

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """The operations of an OpenAPI document."""
        return cls(
            tuple(
                _Operation(method.upper(), compile_path(path)[0], operation["operationId"])
                for path, operations in document["paths"].items()
                for method, operation in operations.items()
            )
        )

    def find(self, method: str, path: str) -> tuple[str, str | None] | None:
        """The id and the target, such as "wh_1" or "wh_1/vip", of an operation, or None."""
        for operation in self._operations:
            match = operation.path.fullmatch(path) if operation.method == method else None
            if match:
                return operation.id, "/".join(match.groups()) or None
        return None

    def methods(self, path: str) -> list[str]:
        """The methods of `path`, sorted."""
        return sorted({each.method for each in self._operations if each.path.fullmatch(path)})
