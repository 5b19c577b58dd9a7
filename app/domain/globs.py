"""Globs of event types: `*` matches any characters, `?` one; there are no other wildcards."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

_WILDCARDS: Final = ("*", "?")


@lru_cache(maxsize=65_536)
def glob_matches(glob: str, text: str) -> bool:
    """Whether `glob` matches the whole `text`.

    The time is at most proportional to the product of their lengths; a regular expression with
    many stars can take exponential time.
    """
    return _matches(glob, text)


def _matches(glob: str, text: str) -> bool:
    first, *pieces = glob.split("*")
    if not pieces:
        return len(first) == len(text) and _is_at(first, text, 0)
    last = pieces.pop()
    start, end = len(first), len(text) - len(last)
    if start > end or not (_is_at(first, text, 0) and _is_at(last, text, end)):
        return False
    # The first place of each piece leaves the most text for the next ones.
    for piece in pieces:
        start = _find(piece, text, start, end)
        if start < 0:
            return False
        start += len(piece)
    return True


def _is_at(piece: str, text: str, start: int) -> bool:
    """Whether `piece`, which has no star, matches the text from `start` on; it must fit."""
    if "?" not in piece:
        return text.startswith(piece, start)
    return all(each in ("?", text[index]) for index, each in enumerate(piece, start))


def _find(piece: str, text: str, start: int, end: int) -> int:
    """The first place of `piece`, which has no star, in `text[start:end]`; -1 without one."""
    if "?" not in piece:
        return text.find(piece, start, end)
    places = range(start, end - len(piece) + 1)
    return next((place for place in places if _is_at(piece, text, place)), -1)


class GlobIndex:
    """A set of globs that finds those that match a text.

    A glob is looked up by its literal prefix, or by its literal suffix if that is longer. So the
    cost depends on the globs whose prefix or suffix fits, not on the number of globs.
    """

    def __init__(self) -> None:
        self._literals: set[str] = set()
        self._by_prefix: dict[str, dict[str, None]] = {}
        self._by_suffix: dict[str, dict[str, None]] = {}
        self._prefix_lengths = Counter[int]()
        self._suffix_lengths = Counter[int]()

    def add(self, glob: str) -> None:
        """Add a glob that the index does not have."""
        prefix, suffix = _literal_ends(glob)
        if prefix == glob:
            self._literals.add(glob)
        elif len(prefix) >= len(suffix):
            _add(self._by_prefix, self._prefix_lengths, prefix, glob)
        else:
            _add(self._by_suffix, self._suffix_lengths, suffix, glob)

    def remove(self, glob: str) -> None:
        """Remove a glob that the index has."""
        prefix, suffix = _literal_ends(glob)
        if prefix == glob:
            self._literals.remove(glob)
        elif len(prefix) >= len(suffix):
            _remove(self._by_prefix, self._prefix_lengths, prefix, glob)
        else:
            _remove(self._by_suffix, self._suffix_lengths, suffix, glob)

    def match(self, text: str) -> Iterator[str]:
        """Yield the globs that match the whole `text`."""
        if text in self._literals:
            yield text
        for length in self._prefix_lengths:
            if length <= len(text):
                yield from _matching(self._by_prefix.get(text[:length], ()), text)
        for length in self._suffix_lengths:
            if length <= len(text):
                yield from _matching(self._by_suffix.get(text[-length:], ()), text)


def _matching(globs: Iterable[str], text: str) -> Iterator[str]:
    return (glob for glob in globs if _matches(glob, text))


def _literal_ends(glob: str) -> tuple[str, str]:
    """The text before the first wildcard of a glob, and the text after the last one."""
    start = min((at for each in _WILDCARDS if (at := glob.find(each)) >= 0), default=len(glob))
    return glob[:start], glob[max(map(glob.rfind, _WILDCARDS)) + 1 :]


def _add(globs: dict[str, dict[str, None]], lengths: Counter[int], literal: str, glob: str) -> None:
    if literal not in globs:
        globs[literal] = {}
        lengths[len(literal)] += 1
    globs[literal][glob] = None


def _remove(
    globs: dict[str, dict[str, None]], lengths: Counter[int], literal: str, glob: str
) -> None:
    del globs[literal][glob]
    if not globs[literal]:
        del globs[literal]
        lengths[len(literal)] -= 1
        if not lengths[len(literal)]:
            del lengths[len(literal)]
