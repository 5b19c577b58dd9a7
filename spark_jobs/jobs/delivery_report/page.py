"""The page of a day, and the list of days: HTML and PNG files in one folder, opened from there.

    index.html
    2026-11-21.html   2026-11-21-events-light.png   …

A file is replaced as a whole, so whoever looks meanwhile sees the page of before or of now.
"""

import re
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from spark_jobs.jobs.delivery_report.figures import (
    OUTCOMES,
    DayReport,
    count_text,
    delay_text,
    delays_alt,
    events_alt,
    share_text,
)
from spark_jobs.jobs.delivery_report.plots import plots_of

_PAGE: Final = re.compile(r"\d{4}-\d\d-\d\d\.html", re.ASCII)

_NOTES: Final = {
    "delivered": "live",
    "failed": "given up after all attempts",
    "left": "left to replays",
    "disabled": "the webhook was not enabled",
    "unsettled": "no outcome is loaded yet",
}


def write_page(report: DayReport, folder: Path, *, source: str, unread: int) -> Path:
    """Write the page of a day, and the list of all days that the folder has; the page's path.

    `source` says what was read, and `unread` how many of its records could not be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    day = report.day.isoformat()
    for name, drawn in plots_of(report).items():
        _replace(folder / f"{day}-{name}.png", drawn)
    page = (
        _templates()
        .get_template("day.html")
        .render(
            day=day,
            report=report,
            outcomes=OUTCOMES,
            notes=_NOTES,
            source=source,
            unread=unread,
            written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            alts={"events": events_alt(report), "delays": delays_alt(report)},
        )
    )
    _replace(folder / f"{day}.html", page.encode())
    _write_index(folder)
    return folder / f"{day}.html"


def _write_index(folder: Path) -> None:
    days = sorted(
        (path.stem for path in folder.iterdir() if _PAGE.fullmatch(path.name)), reverse=True
    )
    index = _templates().get_template("index.html").render(days=days)
    _replace(folder / "index.html", index.encode())


def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("spark_jobs.jobs.delivery_report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"count": count_text, "delay": delay_text, "share": share_text}
    return templates


def _replace(path: Path, content: bytes) -> None:
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
