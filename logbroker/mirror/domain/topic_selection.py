"""Which topics of the source are copied: those listed by name, and those that match patterns.

Source: librdkafka, `rd_kafka_subscribe`: a topic that begins with `^` is a regular expression.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

PATTERN_CHARS_MAX: Final = 249
"""The limit of topic names."""

_NEVER_MATCHED: Final = re.compile(r"__.*|_schemas")
"""Internal topics, which have to be listed by name."""


class TopicSelection:
    """The entries of `--topics`: names, and patterns in Python's syntax."""

    def __init__(self, entries: Sequence[str]) -> None:
        self.names = [each for each in entries if not is_pattern(each)]
        self._patterns = {each: re.compile(each) for each in entries if is_pattern(each)}

    @property
    def has_patterns(self) -> bool:
        """Whether topics that are not listed may match."""
        return bool(self._patterns)

    def matching(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the topics that only a pattern selects, with the pattern."""
        found = {}
        for topic in sorted(set(topics).difference(self.names)):
            pattern = self._pattern_of(topic)
            if pattern is not None:
                found[topic] = pattern
        return found

    def _pattern_of(self, topic: str) -> str | None:
        if _NEVER_MATCHED.fullmatch(topic) is not None:
            return None
        return next((text for text, each in self._patterns.items() if each.fullmatch(topic)), None)


def is_pattern(entry: str) -> bool:
    """Whether an entry of `--topics` is a pattern."""
    return entry.startswith("^")


def pattern_problems(entry: str) -> Iterator[str]:
    """Yield why a pattern is invalid."""
    if len(entry) > PATTERN_CHARS_MAX:
        yield f"pattern too long: {len(entry)} characters, max {PATTERN_CHARS_MAX}"
        return
    try:
        re.compile(entry)
    except (re.error, OverflowError, RecursionError) as error:
        yield f"invalid pattern {entry!r}: not a regular expression: {error}"
