"""Patterns: lists of alternatives for the value of a member, with Amazon EventBridge's operators.

A pattern such as `["new", {"prefix": "re"}]` is stored as JSON text, and compiled where events are
matched. An alternative is a value, or an object with one operator.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import eq, ge, gt, le, lt
from typing import Any, Final, TypeVar, cast

from app.domain.event_values import comparable_value
from app.domain.rules import TEXT_CHARACTERS_MAX, Alternatives, Conditions, Scalar

ALTERNATIVES_MAX: Final = 50
"""Alternatives, values within `anything-but`, and comparisons of all patterns in one `where`."""

PATTERN_BYTES_MAX: Final = 4_096
"""All patterns of one `where` as JSON in UTF-8, with their paths."""

STEPS_MAX: Final = 16
"""Members in the path of a pattern; evaluation is recursive."""

VALUE_ALLOWED: Final = (
    f"a text of up to {TEXT_CHARACTERS_MAX:,} characters, a number, true, false or null"
)

T = TypeVar("T")

Test = Callable[[Any], bool]
"""Whether a value of an event, a scalar, is one that a pattern allows."""

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lt,
    "<=": le,
    "=": eq,
    ">": gt,
    ">=": ge,
}


class PatternInvalid(ValueError):
    """A part of a pattern is not allowed: `place` leads to it, from the pattern's own place."""

    def __init__(self, place: tuple[str | int, ...], value: object, allowed: str) -> None:
        super().__init__(allowed)
        self.place = place
        self.value = value
        self.allowed = allowed

    def within(self, *place: str | int) -> "PatternInvalid":
        """The same error, seen from further out."""
        return PatternInvalid((*place, *self.place), self.value, self.allowed)


@dataclass(frozen=True, slots=True)
class CompiledPattern:
    """What a pattern allows as the value of a member."""

    allows: Test
    values: frozenset[object]
    """The values among the alternatives, as events are compared with them."""
    has_operators: bool
    """Whether further values are allowed, by operators."""
    allows_absence: bool
    """Whether an event without a value fits: `{"exists": false}` is among the alternatives."""
    size: int
    """What counts against `ALTERNATIVES_MAX`."""

    @property
    def allows_values(self) -> bool:
        """Whether a member may have a value at all."""
        return bool(self.values) or self.has_operators


@lru_cache(maxsize=4_096)
def compile_pattern(pattern: Alternatives) -> CompiledPattern:
    """The tests of a pattern that was checked before it was stored."""
    return compile_alternatives(json.loads(pattern.text))


def count_alternatives(patterns: Iterable[Conditions]) -> int:
    """What patterns count together against the limits of alternatives."""
    return sum(
        compile_pattern(each).size
        for conditions in patterns
        for _, each in conditions
        if isinstance(each, Alternatives)
    )


def compile_alternatives(alternatives: Sequence[Any]) -> CompiledPattern:
    """The tests of a pattern.

    Raises:
        PatternInvalid: the pattern is not allowed.
    """
    if not alternatives:
        raise PatternInvalid((), alternatives, "one or more alternatives")
    exact: set[object] = set()
    tests: list[Test] = []
    allows_absence = False
    size = 0
    for number, alternative in enumerate(alternatives):
        try:
            if not isinstance(alternative, dict):
                exact.add(_scalar(alternative))
                size += 1
            elif alternative.get("exists") is False and len(alternative) == 1:
                allows_absence = True
                size += 1
            else:
                test, tests_size = _compile_operator(alternative)
                tests.append(test)
                size += tests_size
        except PatternInvalid as error:
            raise error.within(number) from None
    values = frozenset(exact)
    if values:
        tests.insert(0, lambda value: comparable_value(value) in values)
    has_operators = len(tests) > bool(values)
    return CompiledPattern(_any_of(tests), values, has_operators, allows_absence, size)


def _any_of(tests: Sequence[Test]) -> Test:
    if len(tests) == 1:
        return tests[0]

    def allows(value: Any) -> bool:
        for test in tests:  # noqa: SIM110  `any` would take twice as long
            if test(value):
                return True
        return False

    return allows


def _compile_operator(alternative: dict[str, Any]) -> tuple[Test, int]:
    if len(alternative) != 1 or (name := next(iter(alternative))) not in _OPERATORS:
        raise PatternInvalid((), alternative, f"an object with one of {', '.join(OPERATORS)}")
    try:
        return _OPERATORS[name](alternative[name])
    except PatternInvalid as error:
        raise error.within(name) from None


def _scalar(value: object) -> object:
    """The value as events are compared with it."""
    if not is_scalar(value):
        raise PatternInvalid((), value, VALUE_ALLOWED)
    return comparable_value(cast("Scalar", value))


def is_scalar(value: object) -> bool:
    """Whether a condition may require this value."""
    return value is None or isinstance(value, bool) or _is_number(value) or is_text(value)


def _text(value: object) -> str:
    if not is_text(value):
        raise PatternInvalid((), value, f"a text of up to {TEXT_CHARACTERS_MAX:,} characters")
    return cast("str", value)


def is_text(value: object) -> bool:
    """Whether a value is a text of a length and with characters that a condition may have."""
    # A lone surrogate is valid in JSON, but cannot be encoded as UTF-8.
    return (
        isinstance(value, str)
        and len(value) <= TEXT_CHARACTERS_MAX
        and not any("\ud800" <= each <= "\udfff" for each in value)
    )


def _is_number(value: object) -> bool:
    """Whether a value is a finite number; an integer may be too large for a float."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _prefix(operand: object) -> tuple[Test, int]:
    if (folded := _folded_operand(operand)) is None:
        prefix = _text(operand)
        return lambda value: isinstance(value, str) and value.startswith(prefix), 1
    # Case folding never shortens a text, so these characters suffice.
    length = len(folded)
    return (
        lambda value: isinstance(value, str) and value[:length].casefold().startswith(folded)
    ), 1


def _suffix(operand: object) -> tuple[Test, int]:
    if (folded := _folded_operand(operand)) is None:
        suffix = _text(operand)
        return lambda value: isinstance(value, str) and value.endswith(suffix), 1
    length = len(folded)
    return (lambda value: isinstance(value, str) and value[-length:].casefold().endswith(folded)), 1


def _folded_operand(operand: object) -> str | None:
    """The text of `{"equals-ignore-case": text}` in folded case; None for other operands."""
    if not isinstance(operand, dict):
        return None
    if operand.keys() != {"equals-ignore-case"}:
        raise PatternInvalid((), operand, 'a text, or {"equals-ignore-case": a text}')
    try:
        return _text(operand["equals-ignore-case"]).casefold()
    except PatternInvalid as error:
        raise error.within("equals-ignore-case") from None


def _equals_ignore_case(operand: object) -> tuple[Test, int]:
    folded = _text(operand).casefold()
    length = len(folded)
    return (
        lambda value: isinstance(value, str) and len(value) <= length and value.casefold() == folded
    ), 1


def _wildcard(operand: object) -> tuple[Test, int]:
    first, *pieces = _pieces(_text(operand))
    if not pieces:
        return lambda value: value == first, 1
    *middle, last = pieces

    def matches(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        start, end = len(first), len(value) - len(last)
        if start > end or not (value.startswith(first) and value.endswith(last)):
            return False
        # The first place of each piece leaves the most text for the next ones.
        for piece in middle:
            start = value.find(piece, start, end)
            if start < 0:
                return False
            start += len(piece)
        return True

    return matches, 1


def _pieces(wildcard: str) -> list[str]:
    """The literal texts between the stars; a backslash precedes a literal star or backslash."""
    pieces = [""]
    characters = iter(wildcard)
    previous = ""
    for each in characters:
        if each == "*":
            if previous == "*":
                raise PatternInvalid((), wildcard, "a text without consecutive `*`")
            pieces.append("")
        elif each == "\\":
            escaped = next(characters, "")
            if escaped not in ("*", "\\"):
                raise PatternInvalid((), wildcard, r"a text in which `\` precedes `*` or `\`")
            pieces[-1] += escaped
            each = ""
        else:
            pieces[-1] += each
        previous = each
    return pieces


def _numeric(operand: object) -> tuple[Test, int]:
    comparisons = _comparisons(operand)
    return (
        lambda value: (
            _is_number(value) and all(compare(value, bound) for compare, bound in comparisons)
        )
    ), len(comparisons)


def _comparisons(operand: object) -> Sequence[tuple[Callable[[Any, Any], bool], float]]:
    allowed = f'pairs of {", ".join(_COMPARISONS)} and a number, such as [">=", 0, "<", 5]'
    if not isinstance(operand, list) or not operand or len(operand) % 2:
        raise PatternInvalid((), operand, allowed)
    pairs = list(zip(operand[::2], operand[1::2], strict=True))
    for name, bound in pairs:
        if not (isinstance(name, str) and name in _COMPARISONS and _is_number(bound)):
            raise PatternInvalid((), operand, allowed)
    return [(_COMPARISONS[name], bound) for name, bound in pairs]


def _exists(operand: object) -> tuple[Test, int]:
    # false is not a test of a value: see `compile_pattern`.
    if operand is not True:
        raise PatternInvalid((), operand, "true or false")
    return lambda _: True, 1


def _anything_but(operand: object) -> tuple[Test, int]:
    if isinstance(operand, dict):
        return _nothing_like(operand)
    values = _listed(operand)
    exact = frozenset(_each(_scalar, values, isinstance(operand, list)))
    return lambda value: comparable_value(value) not in exact, len(values)


def _nothing_like(operand: dict[str, Any]) -> tuple[Test, int]:
    if len(operand) != 1 or (name := next(iter(operand))) not in _OF_TEXTS:
        allowed = f"a value, a list of values, or an object with one of {', '.join(_OF_TEXTS)}"
        raise PatternInvalid((), operand, allowed)
    try:
        texts = _listed(operand[name])
        found = _each(_OF_TEXTS[name], texts, isinstance(operand[name], list))
    except PatternInvalid as error:
        raise error.within(name) from None
    tests = [test for test, _ in found]
    return lambda value: not any(test(value) for test in tests), len(tests)


def _listed(operand: object) -> Sequence[object]:
    if operand == []:
        raise PatternInvalid((), operand, "one or more values")
    return operand if isinstance(operand, list) else [operand]


def _each(read: Callable[[object], T], values: Iterable[object], are_listed: bool) -> list[T]:
    """What `read` returns for each value; its errors name the place in the list."""
    found = []
    for number, value in enumerate(values):
        try:
            found.append(read(value))
        except PatternInvalid as error:
            raise (error.within(number) if are_listed else error) from None
    return found


_OF_TEXTS: Final[dict[str, Callable[[object], tuple[Test, int]]]] = {
    "prefix": _prefix,
    "suffix": _suffix,
    "equals-ignore-case": _equals_ignore_case,
    "wildcard": _wildcard,
}

_OPERATORS: Final[dict[str, Callable[[object], tuple[Test, int]]]] = {
    **_OF_TEXTS,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
}

OPERATORS: Final = tuple(_OPERATORS)
