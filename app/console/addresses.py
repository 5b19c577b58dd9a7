"""Where pages are, with what their addresses are to say. Pure."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

NEW_REPLAY: Final = "/console/replays/new"


def address(page: str, fields: Mapping[str, str | None]) -> str:
    """The address of a page with these fields in its query; those that are empty are left out."""
    query = urlencode({name: text for name, text in fields.items() if text})
    return f"{page}?{query}" if query else page
