"""axe-core, the accessibility checker, run within a page as browsers' developer tools run it.

Its one script is fetched from npm's registry, once for each machine.
"""

import functools
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page

from tests.support.http.browser import NARROW, WIDE
from tests.support.processes.downloads import alone_in_cache
from tests.support.processes.server_process import require_program

VERSION: Final = "4.14.1"
SHA256: Final = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""The pinned version, so that every machine checks the same rules."""

DOWNLOAD_S: Final = 120

RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""The tags of the rules that pages must satisfy."""

_OF_LOOKS: Final = ("color-contrast", "target-size", "scrollable-region-focusable")
"""The rules that depend on colours and sizes. All others depend on the document only."""

_SCRIPT: Final = "package/axe.min.js"
_RUN: Final = """rules => axe.run(
    document, {runOnly: rules, resultTypes: ['violations', 'incomplete']}
)"""

_OVERFLOW: Final = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const all = [...document.querySelectorAll('body *')];
    return all.filter(each => each.getBoundingClientRect().right > width)
        .map(each => each.outerHTML.slice(0, 100)).slice(0, 5);
}"""
"""Lists elements that overflow the page to the right."""


def assert_usable(page: Page) -> None:
    """Assert that the page is accessible and never scrolls sideways, in two sizes and themes.

    Leaves it wide and light.
    """
    _show(page, NARROW, "light")
    assert_accessible(page)
    _show(page, WIDE, "dark")
    _assert_none(page, {"type": "rule", "values": _OF_LOOKS})
    page.emulate_media(color_scheme="light")


def _show(page: Page, size: tuple[int, int], scheme: Literal["light", "dark"]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme)
    overflow = page.evaluate(_OVERFLOW)
    assert not overflow, f"{page.url} is wider than {size[0]} px because of {overflow}"


def assert_accessible(page: Page) -> None:
    """Assert that the page, as it is shown now, violates no rule.

    Skips the test where npm's registry cannot be reached.
    """
    _assert_none(page, {"type": "tag", "values": RULES})


def _assert_none(page: Page, rules: Mapping[str, object]) -> None:
    found = list(_violations(page, rules))
    assert not found, f"{page.url} as {page.viewport_size}:\n" + "\n".join(found)


def _violations(page: Page, rules: Mapping[str, object]) -> Iterator[str]:
    # Developer tools bypass the page's content security policy.
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_require_script())
    results = page.evaluate(_RUN, rules)
    for violation in results["violations"]:
        yield f"{violation['id']} ({violation['impact']}): {violation['help']}"
        yield from (f"    {_place(node)}" for node in violation["nodes"])
    # An undecidable contrast, such as text on a picture, counts as a violation.
    doubts = [each for each in results["incomplete"] if each["id"] == "color-contrast"]
    unclear = [node for each in doubts for node in each["nodes"] if not _is_sign(node)]
    if unclear:
        yield "color-contrast (undecided):"
        yield from (f"    {_place(node)}" for node in unclear)


def _is_sign(node: Mapping[str, Any]) -> bool:
    """Report whether a text has no letters: the contrast rule covers letters only."""
    return any((check["data"] or {}).get("messageKey") == "nonBmp" for check in node["any"])


def _place(node: Mapping[str, Any]) -> str:
    reasons = [check["message"] for check in (*node["any"], *node["all"], *node["none"])]
    return f"{node['html'][:200]}: {'; '.join(reasons)}"


def _require_script() -> str:
    require_program("npm", "npm")
    file, reason = _script_file()
    if file is None:
        pytest.skip(f"axe-core cannot be run: {reason}")
    return file.read_text()


@functools.cache
def _script_file() -> tuple[Path | None, str]:
    """Return the script or the reason why it is missing. It is downloaded once per machine."""
    with alone_in_cache() as cache:
        file = cache / f"axe-{VERSION}.min.js"
        if not file.exists():
            reason = _fetch(file)
            if reason is not None:
                return None, reason
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert digest == SHA256, f"{file} is another script: its SHA-256 is {digest}"
    return file, ""


def _fetch(file: Path) -> str | None:
    """Download the package with npm and return the error. The file is created atomically."""
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        try:
            subprocess.run(
                ["npm", "pack", f"axe-core@{VERSION}", "--silent", "--ignore-scripts"],
                cwd=work,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=True,
                timeout=DOWNLOAD_S,
            )
        except subprocess.TimeoutExpired:
            return f"npm did not fetch it within {DOWNLOAD_S} s"
        except subprocess.CalledProcessError as error:
            return f"npm cannot fetch it: {error.stderr.strip()[:300]}"
        with tarfile.open(Path(work) / f"axe-core-{VERSION}.tgz") as package:
            package.extract(_SCRIPT, work, filter="data")
        (Path(work) / _SCRIPT).rename(file)
    return None
