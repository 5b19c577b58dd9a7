"""Where the error codes of an answer lie, for every API that kafka-python encodes for us."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from logbroker.wire.error_codes import NONE
from logbroker.wire.schema import Field, is_in

_ERROR_CODE: Final = "ErrorCode"
_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


class _Places:
    """The error code of one structure, and the lists in it whose items have some."""

    __slots__ = ("_has_code", "_lists")

    def __init__(self, fields: Sequence[Field], version: int) -> None:
        present = [field for field in fields if is_in(version, field["versions"])]
        lists = [
            (_attribute(field["name"]), _Places(field["fields"], version))
            for field in present
            if field["type"].startswith("[]") and "fields" in field
        ]
        self._has_code = any(field["name"] == _ERROR_CODE for field in present)
        self._lists = [(name, places) for name, places in lists if places.are_any]

    @property
    def are_any(self) -> bool:
        """Whether such a structure may tell of an error at all."""
        return self._has_code or bool(self._lists)

    def read(self, structure: Any) -> Iterator[int]:
        if self._has_code and structure.error_code != NONE:
            yield structure.error_code
        for name, places in self._lists:
            for item in getattr(structure, name) or ():
                yield from places.read(item)


def error_codes(message: Any, version: int) -> Counter[int]:
    """How often each error code but 0 is in a response of kafka-python's."""
    return Counter(_places(type(message), version).read(message))  # type: ignore[arg-type]  # of Any


@cache
def _places(kind: Any, version: int) -> _Places:
    return _Places(kind.json["fields"], version)


def _attribute(name: str) -> str:
    """As kafka-python spells a field of its schemas."""
    return _WORD_START.sub("_", name).lower()
