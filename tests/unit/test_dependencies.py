"""Each product imports only the packages that its installation declares."""

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"app", "logbroker", "migrations", "spark_jobs", "pyspark_rewind"}

EXTRAS_OF = {
    "logbroker": (),
    "app": ("service",),
    "migrations": ("service",),
    "spark_jobs": ("spark", "hdfs"),
}
"""The optional dependency groups of each top-level package, in addition to the base."""

EXPORTED_BY = {
    "annotated-types": "pydantic",
    "markupsafe": "jinja2",
    "py4j": "pyspark",
    "pydantic-core": "pydantic",
}
"""Distributions that come with another one and that its users import directly."""


def declared(extras: tuple[str, ...]) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"]]
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    return {normalized(re.split(r"[\[<>=!~;]", line)[0]) for line in requirements}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(package: str) -> set[str]:
    """Top-level names of all imports of a package, except those for type checkers only."""
    found = set()
    for path in (ROOT / package).rglob("*.py"):
        waiting: list[ast.AST] = [ast.parse(path.read_text())]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
            elif isinstance(node, ast.If) and is_for_type_checkers(node):
                waiting += node.orelse
            elif not isinstance(node, ast.expr):
                waiting += ast.iter_child_nodes(node)
    return found - OURS - set(sys.stdlib_module_names)


def is_for_type_checkers(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the installed distributions by the names of their packages."""
    return packages_distributions()


@pytest.mark.xdist_group("dependencies")
@pytest.mark.parametrize("package", EXTRAS_OF)
def test_a_product_declares_the_packages_it_imports(package: str) -> None:
    distributions = _distributions()
    available = declared(EXTRAS_OF[package])
    missing = set()
    for name in imported(package):
        providers = {normalized(each) for each in distributions.get(name, [])}
        if not available & {EXPORTED_BY.get(each, each) for each in providers}:
            missing.add(name)
    assert missing == set()
