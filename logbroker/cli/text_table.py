"""Aligned columns of text."""

from collections.abc import Iterator, Sequence
from typing import Final

UNKNOWN: Final = "-"
"""Stands for None, as in the tables of Kafka's own tools."""

_GAP: Final = "  "


def table_lines(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """The lines of a table, headings first; every row has as many cells as there are headings."""
    cells = [list(headings), *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield line.rstrip()


def _shown(value: object) -> str:
    return UNKNOWN if value is None else str(value)
