"""The member `where` of requests and responses: values and patterns for members of an event.

Source: Amazon EventBridge, "Creating Amazon EventBridge event patterns".
"""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, JsonValue, WithJsonSchema

from app.domain.patterns import (
    ALTERNATIVES_MAX,
    OPERATORS,
    PATTERN_BYTES_MAX,
    STEPS_MAX,
    VALUE_ALLOWED,
    PatternInvalid,
    compile_alternatives,
    count_alternatives,
    is_scalar,
    is_text,
)
from app.domain.rules import (
    CONDITIONS_MAX,
    TEXT_CHARACTERS_MAX,
    Conditions,
    alternatives_of,
    document_of,
    split_patterns,
)

PATH_CHARACTERS_MAX: Final = 256

_TEXT: Final[dict[str, JsonValue]] = {"type": "string", "maxLength": TEXT_CHARACTERS_MAX}
_SCALAR: Final[dict[str, JsonValue]] = {
    "type": ["string", "number", "boolean", "null"],
    "maxLength": TEXT_CHARACTERS_MAX,
}


def _one_or_more(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}


def _operator(**operands: JsonValue) -> dict[str, JsonValue]:
    """The schema of an object with exactly one of these members."""
    members: JsonValue = {name.replace("_", "-"): schema for name, schema in operands.items()}
    limits: dict[str, JsonValue] = {"minProperties": 1, "maxProperties": 1}
    return {"type": "object", "properties": members, "additionalProperties": False, **limits}


_TEXTS: Final = _one_or_more(_TEXT)
_ANY_CASE: Final[JsonValue] = {"anyOf": [_TEXT, _operator(equals_ignore_case=_TEXT)]}
_PATTERN: Final[dict[str, JsonValue]] = {
    "type": "array",
    "minItems": 1,
    "maxItems": ALTERNATIVES_MAX,
    "items": {
        "anyOf": [
            _SCALAR,
            _operator(
                prefix=_ANY_CASE,
                suffix=_ANY_CASE,
                equals_ignore_case=_TEXT,
                wildcard=_TEXT,
                anything_but={
                    "anyOf": [
                        _one_or_more(_SCALAR),
                        _operator(
                            prefix=_TEXTS, suffix=_TEXTS, equals_ignore_case=_TEXTS, wildcard=_TEXTS
                        ),
                    ]
                },
                numeric={"type": "array", "items": {"type": ["string", "number"]}, "minItems": 2},
                exists={"type": "boolean"},
            ),
        ]
    },
}

ConditionDocument = Annotated[Any, WithJsonSchema({"anyOf": [_SCALAR, _PATTERN]})]
"""A condition in a response."""


def _check_condition(document: object) -> object:
    for _ in _flatten("", document):
        pass
    return document


def _check_together(where: dict[str, Any]) -> dict[str, Any]:
    read_where(where)
    return where


Where = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=PATH_CHARACTERS_MAX)],
        Annotated[
            Any,
            WithJsonSchema({"anyOf": [_SCALAR, _PATTERN, {"type": "object", "minProperties": 1}]}),
            AfterValidator(_check_condition),
        ],
    ],
    Field(
        max_length=CONDITIONS_MAX,
        description="Paths in the event, such as `data.userId`, with a value that they must have, "
        "or a list of alternatives: values, and operators of Amazon EventBridge's patterns. Values "
        'are compared as JSON: 42 is not `"42"`. Objects are nested paths: `{"data": {"userId": '
        '[...]}}` is `{"data.userId": [...]}`.',
    ),
    AfterValidator(_check_together),
]
"""Conditions in a request; see `read_where`."""


def read_where(where: Mapping[str, Any]) -> Conditions:
    """The conditions of a request, by their full paths.

    Raises:
        PatternInvalid: one is not allowed, or they are too many or too long together.
    """
    found: dict[str, Any] = {}
    for path, document in where.items():
        for full_path, condition in _flatten(path, document):
            if full_path in found:
                raise PatternInvalid((), full_path, "each path once")
            found[full_path] = condition
    if len(found) > CONDITIONS_MAX:
        raise PatternInvalid((), list(found), f"up to {CONDITIONS_MAX} paths")
    conditions = tuple(found.items())
    _, patterns = split_patterns(conditions)
    _check_size(patterns)
    return conditions


def _check_size(patterns: Conditions) -> None:
    size_bytes = len(json.dumps(document_of(patterns), ensure_ascii=False).encode())
    if size_bytes > PATTERN_BYTES_MAX:
        allowed = f"patterns of up to {PATTERN_BYTES_MAX:,} bytes as JSON, paths included"
        raise PatternInvalid((), f"{size_bytes:,} bytes", allowed)
    size = count_alternatives([patterns])
    if size > ALTERNATIVES_MAX:
        raise PatternInvalid(
            (), f"{size} alternatives", f"up to {ALTERNATIVES_MAX} alternatives in all patterns"
        )


def _flatten(path: str, document: object) -> Iterator[tuple[str, Any]]:
    """The conditions at and below a path."""
    if isinstance(document, list | dict) and path.count(".") >= STEPS_MAX:
        raise PatternInvalid((), path, f"paths of up to {STEPS_MAX} members")
    if isinstance(document, list):
        compile_alternatives(document)
        yield path, alternatives_of(document)
    elif isinstance(document, dict):
        yield from _flatten_object(path, document)
    elif is_scalar(document):
        yield path, document
    else:
        raise PatternInvalid((), document, f"{VALUE_ALLOWED}, or a list of alternatives")


def _flatten_object(path: str, document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if not document or any(name in OPERATORS for name in document):
        # Without the list it would silently be a condition on a member of this name.
        allowed = 'members of the event; operators stand in a list, such as [{"prefix": "a"}]'
        raise PatternInvalid((), document, allowed)
    for name, each in document.items():
        full_path = f"{path}.{name}"
        if not name or len(full_path) > PATH_CHARACTERS_MAX or not is_text(name):
            allowed = f"paths of 1 to {PATH_CHARACTERS_MAX} characters"
            raise PatternInvalid((name,), full_path, allowed)
        try:
            yield from _flatten(full_path, each)
        except PatternInvalid as error:
            raise error.within(name) from None
