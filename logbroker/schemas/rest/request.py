"""Parse a request to the schema registry, as leniently as Confluent's registry does."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from logbroker.schemas.avro.compatibility import Compatibility
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.errors import (
    InvalidCompatibility,
    InvalidSchema,
    InvalidVersion,
    SchemaNotFound,
)
from logbroker.schemas.rest.errors import InvalidMode, OperationNotPermitted, RequestRejected

VERSION_MAX: Final = 2**31 - 1

REFERENCES_MAX: Final = 1_000
"""Nesting depth of a body; the registry itself has a lower limit."""

READ_WRITE: Final = "READWRITE"
READ_ONLY: Final = "READONLY"

MODES: Final = frozenset({READ_WRITE, READ_ONLY, "READONLY_OVERRIDE", "IMPORT", "FORWARD"})
"""Modes of Confluent's registry."""

_WHOLE: Final = re.compile(r"-?[0-9]{1,10}")

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class RestRequest:
    """A request with a known route: its path parameters, query and body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = b""

    @property
    def subject(self) -> str:
        """The subject in the path."""
        return self.path["subject"]

    def flag(self, name: str) -> bool:
        """Whether the query has `true`; any other value is false, as in Java."""
        return self.query.get(name, "").lower() == "true"

    def page(self, items: Sequence[_Item]) -> list[_Item]:
        """The items from `offset` on, `limit` of them; all if it is negative."""
        offset, limit = max(self._number("offset", 0), 0), self._number("limit", -1)
        return list(items[offset:] if limit < 0 else items[offset : offset + limit])

    def version(self) -> int | None:
        """The version in the path; None is the latest.

        Raises:
            InvalidVersion: it is neither a number from 1 on nor `latest`.
        """
        text = self.path["version"].strip()
        if text.lower() in ("latest", "-1"):
            return None
        if not _WHOLE.fullmatch(text) or not 0 < int(text) <= VERSION_MAX:
            raise InvalidVersion(
                f"The specified version {text[:100]!r} is not a valid version id. Allowed values"
                f' are between [1, {VERSION_MAX}] and the string "latest".'
            )
        return int(text)

    def schema_id(self) -> int:
        """The id in the path.

        Raises:
            SchemaNotFound: no schema can have it.
        """
        text = self.path["id"]
        if not _WHOLE.fullmatch(text) or not 0 < int(text) <= VERSION_MAX:
            raise SchemaNotFound(f"Schema {text[:100]!r} not found.")
        return int(text)

    def schema(self) -> SchemaText:
        """The schema in the body.

        Raises:
            RequestRejected: the body is not a JSON object.
            InvalidSchema: it has no Avro schema, or an unsupported member.
        """
        document = self._document()
        kind = document.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise InvalidSchema(
                f"The schema type {str(kind)[:100]!r} is not allowed, only AVRO is."
            )
        for name in ("metadata", "ruleSet"):
            if document.get(name):
                raise InvalidSchema(f"{name!r} is not supported.")
        text = document.get("schema")
        if not isinstance(text, str) or not text.strip():
            raise InvalidSchema("'schema' is missing: must be the schema as a string.")
        return SchemaText(text, _references(document.get("references")))

    def new_schema(self) -> SchemaText:
        """The schema in the body, without an id or version.

        Raises:
            OperationNotPermitted: the body has an id or version.
            RequestRejected, InvalidSchema: as for `schema`.
        """
        document = self._document()
        for name in ("id", "version"):
            # The Java client writes 0 or -1 for no value.
            chosen = document.get(name)
            if isinstance(chosen, int) and chosen > 0:
                raise OperationNotPermitted(f"{name!r} cannot be set: the registry assigns it.")
        return self.schema()

    def level(self) -> Compatibility:
        """The compatibility level in the body.

        Raises:
            RequestRejected: the body is not a JSON object.
            InvalidCompatibility: the level does not exist, or the body has other members.
        """
        document = self._document()
        others = sorted(
            name for name, value in document.items() if value and name not in _LEVEL_NAMES
        )
        if others:
            raise InvalidCompatibility(f"Only 'compatibility' can be set, not {others[0][:100]!r}.")
        # A missing level is read as empty: Python's None must not become the level NONE.
        named = next((document[name] for name in _LEVEL_NAMES if document.get(name)), "")
        try:
            return Compatibility(str(named).upper())
        except ValueError:
            allowed = ", ".join(each.value for each in Compatibility)
            raise InvalidCompatibility(
                f"Invalid compatibility level {str(named)[:100]!r}. Valid values are {allowed}."
            ) from None

    def mode(self, current: str) -> str:
        """The mode in the body, which must be the current one.

        Raises:
            RequestRejected: the body is not a JSON object.
            InvalidMode: the mode does not exist.
            OperationNotPermitted: it is another mode.
        """
        named = str(self._document().get("mode"))
        if named.upper() not in MODES:
            raise InvalidMode(f"Invalid mode {named[:100]!r}. Only {current} is supported.")
        if named.upper() != current:
            raise OperationNotPermitted(f"The mode is {current} and cannot be set to {named!r}.")
        return current

    def _number(self, name: str, default: int) -> int:
        text = self.query.get(name, str(default))
        if not _WHOLE.fullmatch(text):
            raise RequestRejected(400, f"{name!r} is {text[:100]!r}; must be a whole number.")
        return int(text)

    def _document(self) -> dict[str, Any]:
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            raise RequestRejected(400, "The body is not JSON.") from None
        if not isinstance(document, dict):
            raise RequestRejected(400, "The body is not a JSON object.")
        return document


_LEVEL_NAMES: Final = ("compatibility", "compatibilityLevel")


def _references(listed: Any) -> tuple[Reference, ...]:
    if not listed:
        return ()
    if not isinstance(listed, list) or len(listed) > REFERENCES_MAX:
        raise InvalidSchema(f"invalid references: must be a list of up to {REFERENCES_MAX}")
    return tuple(_reference(each) for each in listed)


def _reference(listed: Any) -> Reference:
    match listed:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if (
            # In Python, true is a number as well.
            version is not True and 0 < version <= VERSION_MAX
        ):
            return Reference(name, subject, version)
    raise InvalidSchema(
        "invalid reference: must have 'name', 'subject' and 'version', a number from 1 on"
    )
