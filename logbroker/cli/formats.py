"""Text formats that the commands share: errors, times in RFC 3339, and tables."""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

import click

REFUSED: Final = 1
MISUSED: Final = 2


def refuse(reasons: object, exit_code: int = REFUSED) -> NoReturn:
    """Print the reasons, one per line, and exit."""
    for line in str(reasons).splitlines():
        click.echo(f"logbroker: {line}", err=True)
    sys.exit(exit_code)


_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def format_time(timestamp_ms: int) -> str:
    """Format a timestamp; one after the year 9999 remains a number of milliseconds."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def parse_time(text: str) -> int:
    """Return milliseconds since 1970, rounded down.

    Raises:
        ValueError: the text is not a time with a UTC offset, or is before 1970.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or moment < _EPOCH:
        raise ValueError(text)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


UNKNOWN: Final = "-"
"""Represents None, as in the tables of Kafka's own tools."""

_GAP: Final = "  "


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table, headings first; rows have as many cells as headings."""
    cells = [list(headings), *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield line.rstrip()


def _shown(value: object) -> str:
    return UNKNOWN if value is None else str(value)
