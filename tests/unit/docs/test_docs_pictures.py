"""Each picture has a light and a dark form, a plot has both in one file, and all are used."""

import re
from pathlib import Path

import pytest

from tests.unit.docs.doc_pages import DOCS

PAGES = sorted(DOCS.rglob("*.md"))
PNG = b"\x89PNG\r\n\x1a\n"

_PICTURE = re.compile(r"<picture>\s*<source ([^>]+)>\s*<img ([^>]+)>\s*</picture>")
_DARK = 'media="(prefers-color-scheme: dark)" srcset="{}-dark.png"'
_PLOT = re.compile(r"!\[[^\]]+\]\(([^)]+\.svg)\)")
_IMAGE = re.compile(r'alt="[^"]+" src="([^"]+)-light\.png"')


def pictures(page: Path) -> set[Path]:
    """The files that a page shows; it says of each what is on it, and has one for the dark."""
    text = page.read_text()
    found = set()
    for source, image in _PICTURE.findall(text):
        name = _IMAGE.fullmatch(image)
        assert name is not None, image
        assert source == _DARK.format(name[1])
        found |= {page.parent / f"{name[1]}-{scheme}.png" for scheme in ("light", "dark")}
    assert text.count("<img") == len(found) / 2, "each picture is for light and dark"
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_picture_of_a_page_is_there(page: Path) -> None:
    for picture in pictures(page):
        assert picture.read_bytes().startswith(PNG)


def plots(page: Path) -> set[Path]:
    """The plots that a page shows, with a text for those who do not see them."""
    return {page.parent / name for name in _PLOT.findall(page.read_text())}


def test_every_plot_has_colours_for_the_dark() -> None:
    for plot in set[Path]().union(*map(plots, PAGES)):
        assert "prefers-color-scheme: dark" in plot.read_text()


def test_every_picture_is_on_a_page() -> None:
    shown = set[Path]().union(*map(pictures, PAGES), *map(plots, PAGES))
    assert {*(DOCS / "images").rglob("*.*")} == shown
