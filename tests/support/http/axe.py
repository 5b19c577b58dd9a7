"""axe-core, the accessibility checker, run within a page as browsers' developer tools run it.

Its one script is fetched from npm's registry, once for each machine.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page

from tests.support.http.browser import NARROW, WIDE
from tests.support.processes.npm_packages import find_npm_file

VERSION: Final = "4.14.1"
SHA256: Final = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
"""The pinned version, so that every machine checks the same rules."""

RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""The tags of the rules that pages must satisfy."""

_OF_LOOKS: Final = ("color-contrast", "target-size", "scrollable-region-focusable")
"""The rules that depend on colours and sizes. All others depend on the document only."""

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
    file, reason = find_npm_file(f"axe-core@{VERSION}", "axe.min.js", SHA256)
    if file is None:
        pytest.skip(f"axe-core cannot be run: {reason}")
    return file.read_text()
