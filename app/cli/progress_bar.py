"""A replay's progress on a terminal: one line that is drawn again and again."""

import sys
import time
from typing import Any, Final

import click

from app.cli.api_client import ApiClient
from app.domain.states import ACTIVE

WIDTH: Final = 30
POLL_S: Final = 0.5
"""A key has some ten requests a second for all that is done with it."""


def follow(client: ApiClient, job: dict[str, Any]) -> dict[str, Any]:
    """Draw the job's progress on standard error until it has ended; the job as it ended.

    Where standard error is no terminal, a line is written for each change of state, and one
    with the counts at the end.
    """
    draw = _drawn if sys.stderr.isatty() else _told
    try:
        shown = draw(job, "")
        while job["state"] in ACTIVE:
            time.sleep(POLL_S)
            job = client.replay(job["id"])
            shown = draw(job, shown)
    finally:
        if draw is _drawn:
            click.echo(err=True)
    if draw is _told:
        click.echo(describe(job), err=True)
    return job


def _drawn(job: dict[str, Any], shown: str) -> str:
    """Draw the line of a job over the one that is shown."""
    if (line := describe(job)) != shown:
        click.echo(f"\r\033[K{line}", err=True, nl=False)
    return line


def _told(job: dict[str, Any], shown: str) -> str:
    """Write the state of a job, if it is another than the one shown."""
    if (line := f"replay {job['id']} is {job['state']}") != shown:
        click.echo(line, err=True)
    return line


def describe(job: dict[str, Any]) -> str:
    """One line: state, bar, percentage, counts, rate, time left, and what it waits for."""
    share = job.get("progress") or 0.0
    filled = round(share * WIDTH)
    bar = "█" * filled + "·" * (WIDTH - filled)
    counts = job["counts"]
    words = [
        f"{job['state']:<9} {bar} {share:4.0%}",
        f"{counts['delivered']:,} delivered",
    ]
    words += [f"{counts[name]:,} {name}" for name in ("duplicates", "failed") if counts[name]]
    if job.get("eventsPerSecond"):
        words.append(f"{job['eventsPerSecond']:,.0f}/s")
    if job.get("etaSeconds") is not None:
        words.append(f"ETA {job['etaSeconds']:.0f} s")
    if job.get("waitingFor"):
        words.append(f"waiting: {job['waitingFor']}")
    return "  ".join(words)
