"""Writes the HTML page of a day and the list of days, with PNG plots, to a folder.

    index.html
    2026-11-21.html   2026-11-21-events-light.png   …

Files are replaced atomically, so a browser gets the old or the new version.
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

_PAGE: Final = re.compile(r"\d{4}-\d\d-\d\d\.html", re.ASCII)

_NOTES: Final = {
    "delivered": "live",
    "failed": "all attempts failed",
    "left": "skipped by the live path",
    "disabled": "webhook not enabled",
    "unsettled": "no outcome loaded yet",
}


def write_page(report: DayReport, folder: Path, *, source: str, unread: int) -> Path:
    """Write the page of a day, and the list of the folder's days; the page's path.

    `source` describes the input, and `unread` is the number of unreadable records.
    """
    # Importing Matplotlib takes as long as to draw a page.
    from spark_jobs.jobs.delivery_report.plots import plots_of

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
