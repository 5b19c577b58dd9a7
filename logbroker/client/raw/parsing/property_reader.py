"""Takes texts, choices and numbers out of properties, and keeps what is wrong with them."""

from collections.abc import Mapping, Sequence
from typing import Final

INT32_MAX: Final = 2**31 - 1


class PropertyReader:
    """Properties, each of which may have more than one name; `problems` gathers complaints.

    A value that cannot be is told once and then taken for missing, so that one look finds all.
    Values of secrets are read by `text`, which shows none.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.problems: list[str] = []

    def text(self, *names: str) -> str | None:
        """What the property is that has one of these names; none where it is missing."""
        given = [name for name in names if name in self._properties]
        if len({self._properties[name] for name in given}) > 1:
            self.problems.append(f"{' and '.join(given)} contradict each other")
        return self._properties[given[0]] if given else None

    def choice(self, allowed: Sequence[str], *names: str) -> str | None:
        """One of the allowed words, as they are written there, in whatever case it was given."""
        text = self.text(*names)
        if text is None:
            return None
        found = next((each for each in allowed if each.lower() == text.lower()), None)
        if found is None:
            shown = ", ".join(each or "nothing" for each in allowed)
            self.problems.append(f"{self.name_of(*names)} is {text!r}; allowed are {shown}")
        return found

    def number(self, default: int, least: int, *names: str) -> int:
        """A whole number from `least` to what an int32 holds."""
        text = self.text(*names)
        if text is None:
            return default
        if text.isdecimal() and least <= int(text) <= INT32_MAX:
            return int(text)
        self.problems.append(
            f"{self.name_of(*names)} is {text!r}; allowed is a number from {least} to {INT32_MAX}"
        )
        return default

    def name_of(self, *names: str) -> str:
        """By which of its names the property was given, or the first."""
        return next((name for name in names if name in self._properties), names[0])
