"""The pages of the documentation, and the tables in them."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[3] / "docs"

Row = dict[str, str]


def page(name: str) -> str:
    return (DOCS / name).read_text()


def section(text: str, heading: str) -> str:
    """The text from a heading to the next one, of whatever level."""
    _, found, rest = text.partition(f"\n{heading}\n")
    assert found, f"there is no {heading!r}"
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table(text: str, heading: str, number: int = 0) -> list[Row]:
    """The rows of a table under a heading, by the names of its columns; no backticks."""
    paragraphs = section(text, heading).split("\n\n")
    lines = [each.strip() for each in paragraphs if each.strip().startswith("|")][number]
    cells = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in lines.splitlines()
    ]
    names, _rule, *rows = cells
    return [dict(zip(names, row, strict=True)) for row in rows]


def shown(value: Any) -> str:
    """A default as the pages write it: whole numbers without a point, Kafka's words for truth."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def function_shown(text: str, name: str) -> Any:
    """The function of this name as a page shows it in Python."""
    namespace: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(code, namespace)
    return namespace[name]
