"""A record that cannot be read: it is set aside, and no error of the job."""

from typing import Final

REASON_CHARS_MAX: Final = 300
"""Reasons quote what they are about, which may be of any length."""


class UndecodableRecord(ValueError):
    """A record is not what its topic holds; the text says why."""

    @property
    def reason(self) -> str:
        """The text, not longer than `REASON_CHARS_MAX`."""
        return str(self)[:REASON_CHARS_MAX]
