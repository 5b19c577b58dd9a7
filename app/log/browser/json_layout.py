"""JSON laid out for people, to a bounded length: its words stay as they were sent."""

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

PARSED_CHARS_MAX: Final = 2**20
"""A longer text is not looked into."""

_WORD: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")


class LaidOut(NamedTuple):
    """The text, or its beginning where it `is_cut`."""

    text: str
    is_cut: bool


def is_json(text: str) -> bool:
    """Whether a text is an object or an array in JSON, of a length and depth that are read here."""
    if len(text) > PARSED_CHARS_MAX or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        # Texts, for a number may be longer than Python reads.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def lay_out(text: str, chars_max: int) -> LaidOut:
    """A text that `is_json`, with a line for each member, indented by two blanks."""
    pieces: list[str] = []
    left = chars_max
    for piece in _pieces(text):
        if len(piece) > left:
            pieces.append(piece[:left])
            return LaidOut("".join(pieces), is_cut=True)
        pieces.append(piece)
        left -= len(piece)
    return LaidOut("".join(pieces), is_cut=False)


def _pieces(text: str) -> Iterator[str]:
    depth = 0
    before = ""
    for match in _WORD.finditer(text):
        word = match[0]
        closes = word in _CLOSING
        depth -= closes
        # An empty object or array stays on its line.
        if before == "," or closes != (before in _OPENING):
            yield "\n" + "  " * depth
        yield ": " if word == ":" else word
        depth += word in _OPENING
        before = word


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
