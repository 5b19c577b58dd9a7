"""The HTML page of a day's deliveries."""

import struct
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  On a new machine, it starts a program: not in a test.
import pytest

from spark_jobs.jobs.delivery_report.figures import (
    COUNTS,
    NOTHING,
    DayReport,
    Figures,
    delay_text,
    share_text,
)
from spark_jobs.jobs.delivery_report.page import write_page

DAY = date(2026, 11, 21)


def figures(*, p50_ms: int | None = None, p95_ms: int | None = None, **counts: int) -> Figures:
    return Figures(dict.fromkeys(COUNTS, 0) | counts, p50_ms, p95_ms)


REPORT = DayReport(
    day=DAY,
    webhooks=2,
    total=figures(owed=1_500, delivered=1_498, failed=2, replayed=2, p50_ms=40, p95_ms=4_200),
    hours={
        8: figures(owed=1_400, delivered=1_400, p50_ms=40, p95_ms=900),
        21: figures(owed=100, delivered=98, failed=2, replayed=2, p50_ms=80, p95_ms=4_200),
    },
    worst={"<script>alert(1)</script>": figures(owed=90, delivered=88, failed=2)},
)
EMPTY = DayReport(DAY, 0, figures(), {}, {})


class Page(HTMLParser):
    """The texts and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(" ".join(data.split()))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


# Each page is drawn once.
pytestmark = pytest.mark.xdist_group("delivery_page")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write_page(REPORT, folder / "days", source="/tables/raw, version 7", unread=3)
    return folder / "days"


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "2026-11-21.html").read_text())


@pytest.fixture(scope="module")
def folder_of_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page of a day without events, written after those of other days."""
    folder = tmp_path_factory.mktemp("days")
    for other in ("notes", "2026-11-22", "2026-11-20"):
        (folder / f"{other}.html").touch()
    page = write_page(EMPTY, folder, source="/tables/raw", unread=0)
    assert page == folder / "2026-11-21.html"
    return folder


def test_every_image_is_a_png_file_with_an_alternative_text(page: Page, folder: Path) -> None:
    files = [each["src"] for each in page.of("img")] + [
        each["srcset"] for each in page.of("source")
    ]
    assert len(files) == 4
    for file in files:
        content = (folder / str(file)).read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", content[16:24]) == (1_200, 540)
    events, delays = (str(each["alt"]) for each in page.of("img"))
    assert "Most events: 08:00 with 1,400." in events
    assert "Most undelivered: 21:00 with 2." in events
    assert "Slowest: 21:00 with a p95 of 4.2 s." in delays


def test_dark_plots_differ_from_light_ones(folder: Path) -> None:
    for name in ("events", "delays"):
        light = (folder / f"2026-11-21-{name}-light.png").read_bytes()
        assert light != (folder / f"2026-11-21-{name}-dark.png").read_bytes()


def test_webhook_names_are_escaped(page: Page) -> None:
    assert page.of("script") == []
    assert "<script>alert(1)</script>" in page.texts


def test_a_page_has_no_external_resources(folder: Path) -> None:
    text = (folder / "2026-11-21.html").read_text()
    assert "://" not in text
    assert "javascript" not in text


def test_the_page_shows_the_figures(page: Page) -> None:
    start = page.texts.index("The day")
    assert page.texts[start + 1 : start + 10] == [
        *("events", "1,500", "unique"),
        *("delivered", "1,498", "99.87 %; live"),
        *("failed", "2", "0.13 %; all attempts failed"),
    ]
    assert any("3 records could not be read" in text for text in page.texts)
    assert any("/tables/raw, version 7" in text for text in page.texts)


def test_each_table_has_a_caption_and_scoped_headings(page: Page) -> None:
    assert len(page.of("table")) == len(page.of("caption")) == 2
    assert all(each["scope"] in ("col", "row") for each in page.of("th"))
    # Twelve columns, of which the first is the row heading.
    assert len(page.of("td")) == 3 * 11


def test_a_day_without_events_has_a_page(folder_of_days: Path) -> None:
    page = Page((folder_of_days / "2026-11-21.html").read_text())
    assert "Everything was delivered live." in page.texts
    assert not any("could not be read" in text for text in page.texts)
    assert [each["alt"] for each in page.of("img")] == [
        "No events.",
        "No delays: nothing was delivered live.",
    ]


def test_the_index_lists_all_days_newest_first(folder_of_days: Path) -> None:
    index = Page((folder_of_days / "index.html").read_text())
    assert [each["href"] for each in index.of("a")] == [
        *("2026-11-22.html", "2026-11-21.html", "2026-11-20.html"),
    ]
    assert list(folder_of_days.glob(".*.tmp")) == []


@pytest.mark.parametrize(
    ("delay_ms", "text"),
    [
        (None, NOTHING),
        (0, "0 ms"),
        (-250, "-250 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (4_240, "4.24 s"),
        (-61_000, "-1.02 min"),
        (3_600_000, "1 h"),
        (7_200_000_000, "2,000 h"),
    ],
)
def test_delays_are_formatted_in_a_suitable_unit(delay_ms: int | None, text: str) -> None:
    assert delay_text(delay_ms) == text


def test_a_share_is_100_percent_only_if_exact() -> None:
    assert share_text(999_999, 1_000_000) == "99.99 %"
    assert share_text(1, 1_000_000) == "0.01 %"
    assert share_text(7, 7) == "100.00 %"
    assert share_text(0, 7) == "0.00 %"
    assert share_text(0, 0) == NOTHING
