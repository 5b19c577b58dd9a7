"""Which topics of the source are to be copied: those named, and those that patterns find; pure.

Source: librdkafka, `rd_kafka_subscribe`: a topic that begins with `^` is a regular expression.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

PATTERN_CHARS_MAX: Final = 249
"""As long as a topic's name may be."""

_NEVER_FOUND: Final = re.compile(r"__.*|_schemas")
"""What is a system's own: who wants it has to name it."""


class TopicChoice:
    """What the operator chose: `entries` are names, and patterns in Python's syntax."""

    def __init__(self, entries: Sequence[str]) -> None:
        self.names = [each for each in entries if not is_pattern(each)]
        self._patterns = {each: re.compile(each) for each in entries if is_pattern(each)}

    @property
    def has_patterns(self) -> bool:
        """Whether topics that nobody named may be found."""
        return bool(self._patterns)

    def found(self, there: Iterable[str]) -> dict[str, str]:
        """The topics that only patterns choose, of those there are, and which pattern does."""
        found = {}
        for topic in sorted(set(there).difference(self.names)):
            pattern = self._pattern_of(topic)
            if pattern is not None:
                found[topic] = pattern
        return found

    def _pattern_of(self, topic: str) -> str | None:
        if _NEVER_FOUND.fullmatch(topic) is not None:
            return None
        return next((text for text, each in self._patterns.items() if each.fullmatch(topic)), None)


def is_pattern(entry: str) -> bool:
    """Whether an entry of `--topics` is no name."""
    return entry.startswith("^")


def pattern_problems(entry: str) -> Iterator[str]:
    """Why a pattern cannot be."""
    if len(entry) > PATTERN_CHARS_MAX:
        yield f"pattern has {len(entry)} characters; allowed are {PATTERN_CHARS_MAX}"
        return
    try:
        re.compile(entry)
    except (re.error, OverflowError, RecursionError) as error:
        yield f"pattern is {entry!r}; allowed is a regular expression: {error}"
