"""Indents JSON, up to a maximum length; numbers and strings keep their spelling."""

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, NoReturn

PARSED_CHARS_MAX: Final = 2**20
"""Longer texts are not parsed."""

_WORD: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_OPENING: Final = frozenset("[{")
_CLOSING: Final = frozenset("]}")


class IndentedJson(NamedTuple):
    """Indented JSON, or its beginning if it `is_cut`."""

    text: str
    is_cut: bool


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or array, within the limits of length and depth."""
    if len(text) > PARSED_CHARS_MAX or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        # As strings, because a number may be longer than Python parses.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def indent_json(text: str, chars_max: int) -> IndentedJson:
    """Indent a text that `is_json` by two spaces, with one line for each member."""
    pieces: list[str] = []
    left = chars_max
    for piece in _pieces(text):
        if len(piece) > left:
            pieces.append(piece[:left])
            return IndentedJson("".join(pieces), is_cut=True)
        pieces.append(piece)
        left -= len(piece)
    return IndentedJson("".join(pieces), is_cut=False)


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
    raise ValueError(f"{word} is not JSON")
