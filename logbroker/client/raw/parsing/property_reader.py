"""Reads texts, choices and numbers from properties, and collects their problems."""

from collections.abc import Mapping, Sequence
from typing import Final

INT32_MAX: Final = 2**31 - 1


class PropertyReader:
    """Properties, each of which may have several names; `problems` collects the errors.

    An invalid value is reported once and then treated as missing, so that all problems are found.
    Secrets are read with `text`, which never shows a value.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self.problems: list[str] = []

    def text(self, *names: str) -> str | None:
        """Return the value of the property with one of these names; None if missing."""
        given = [name for name in names if name in self._properties]
        if len({self._properties[name] for name in given}) > 1:
            self.problems.append(f"{' and '.join(given)} contradict each other")
        return self._properties[given[0]] if given else None

    def choice(self, allowed: Sequence[str], *names: str) -> str | None:
        """Return one of the allowed words in its defined spelling; case is ignored."""
        text = self.text(*names)
        if text is None:
            return None
        found = next((each for each in allowed if each.lower() == text.lower()), None)
        if found is None:
            shown = ", ".join(each or "nothing" for each in allowed)
            self.problems.append(f"{self.name_of(*names)} is {text!r}; allowed: {shown}")
        return found

    def number(self, default: int, least: int, *names: str) -> int:
        """Return a whole number from `least` to the maximum of an int32."""
        text = self.text(*names)
        if text is None:
            return default
        if text.isdecimal() and least <= int(text) <= INT32_MAX:
            return int(text)
        self.problems.append(f"{self.name_of(*names)} is {text!r}; allowed: {least} to {INT32_MAX}")
        return default

    def name_of(self, *names: str) -> str:
        """Return the name under which the property was given, or the first."""
        return next((name for name in names if name in self._properties), names[0])
