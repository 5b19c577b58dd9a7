"""Check that prose is plain and that class names are unique: `python -m tests.plain_language`.

Prose is comments, docstrings and other text of the code, Markdown outside code spans, and the
console's templates. Exits with 1 and a line for each finding.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]

PRODUCTS: Final = ("app", "logbroker", "spark_jobs")

_CODE_FOLDERS: Final = (*PRODUCTS, "migrations", "tests", "benchmarks", "docs")

_OLD_WORDS: Final = re.compile(
    r"\b(?:"
    r"told|telling|nobody|whoever|anew|owed|alike|parcels?|couriers?|consignments?|errands?"
    r"|in vain|of no sense|as may be|go(?:es)? on|what becomes of|let(?:s|ting)? go of|at last"
    r"|hold(?:s|ing)? against|there (?:is|are) no such|passed over|left over"
    r"|(?-i:(?<!there )is none)"
    r")\b",
    re.IGNORECASE,
)
"""Words of a private language that this project had. The glossary has the terms to use instead."""


class Finding(NamedTuple):
    """A place to correct: `path` from the repository's top, `line` from 1."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def main() -> None:
    """Print every finding; exit with 1 if there is one."""
    findings = sorted([*old_words(), *repeated_class_names()])
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)


def old_words() -> Iterator[Finding]:
    """Old words in the prose of code, pages and templates."""
    this_file = Path(__file__)
    for path in _files():
        if path != this_file:
            for line, text in _prose(path):
                for match in _OLD_WORDS.finditer(text):
                    yield Finding(path.relative_to(ROOT), line, f"old word {match[0]!r}")


def repeated_class_names() -> Iterator[Finding]:
    """Classes whose name another class of the same product has, too."""
    for product in PRODUCTS:
        places = defaultdict(list)
        for path in sorted((ROOT / product).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append((path.relative_to(ROOT), node.lineno))
        for name, found in places.items():
            for path, line in found if len(found) > 1 else ():
                yield Finding(path, line, f"class name {name} is not unique in {product}")


def _files() -> Iterator[Path]:
    for folder in _CODE_FOLDERS:
        for pattern in ("*.py", "*.md", "*.html", "*.yml"):
            yield from (ROOT / folder).rglob(pattern)
    yield from ROOT.glob("*.md")


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of prose in a file, with their numbers."""
    text = path.read_text()
    if path.suffix == ".py":
        return _prose_of_code(text)
    if path.suffix == ".md":
        text = re.sub(r"^```.*?^```|`[^`\n]*`", _blank, text, flags=re.MULTILINE | re.DOTALL)
    if path.suffix == ".html":
        text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", _blank, text, flags=re.DOTALL)
    return enumerate(text.splitlines(), 1)


def _prose_of_code(text: str) -> Iterator[tuple[int, str]]:
    kinds = {tokenize.COMMENT, tokenize.STRING}
    kinds |= {getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}  # Python 3.12 and later
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # A literal without a blank is a name of the code, such as a column of a table.
        if token.type in kinds and " " in token.string:
            yield from enumerate(_fields_blanked(token.string).splitlines(), token.start[0])


def _fields_blanked(text: str) -> str:
    """The text without the replacement fields of an f-string."""
    return re.sub(r"\{[^{}]*\}", _blank, text)


def _blank(match: re.Match[str]) -> str:
    """As many lines without text, so that line numbers stay."""
    return "\n" * match[0].count("\n")


if __name__ == "__main__":
    main()
