"""ARCHITECTURE.md names packages and modules that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PRODUCTS = ("logbroker", "app", "spark_jobs")
MODULES = {path.stem for product in PRODUCTS for path in (ROOT / product).rglob("*.py")} | {
    path.name for product in PRODUCTS for path in (ROOT / product).rglob("*/")
}
TOPICS = {"events", "delivery_log", "delivery_outcomes", "delivery_archive"}


def rows(heading: str) -> Iterator[tuple[str, str]]:
    """The two cells of every table row of a section."""
    text = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    yield from re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE)


def code_spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_packages_exist_and_contain_the_modules_of_their_row() -> None:
    product, missing = "", []
    for first, second in rows("Packages"):
        if "---" in first:
            continue
        if second == "content":
            product = code_spans(first)[0]
            continue
        packages = [ROOT / product / name for name in code_spans(first)]
        missing += [package for package in packages if not package.exists()]
        if packages[0].name != "cli":
            names = re.findall(r"`([a-z_]+/?)`", second)
            places = [*packages, ROOT / product, ROOT]
            missing += [name for name in names if not any(is_module(p / name) for p in places)]
    assert missing == []


def test_paths_name_modules() -> None:
    paths = [path for _, text in rows("Paths through the code") for path in code_spans(text)]
    names = {name for path in paths if "->" in path for name in re.findall(r"[a-z_]+", path)}
    assert names - MODULES - TOPICS == set()
