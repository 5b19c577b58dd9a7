"""A replay's progress on a terminal, as one line that is redrawn."""

import sys
import time
from typing import Any, Final

import click

from app.cli.api_client import ApiClient
from app.domain.replay_results import COMPLETED_WITH_FAILURES_LABEL, ReplayResult
from app.domain.states import ACTIVE

WIDTH: Final = 30
POLL_S: Final = 0.5
"""A key may send about ten requests per second in total."""


def follow(client: ApiClient, job: dict[str, Any]) -> dict[str, Any]:
    """Draw the progress on standard error until the job has ended. Returns the ended job.

    Without a terminal, it prints a line per change of state, and one with counts at the end.
    """
    is_terminal = sys.stderr.isatty()
    draw = _redraw_line if is_terminal else _print_state
    try:
        shown = draw(job, "")
        while job["state"] in ACTIVE:
            time.sleep(POLL_S)
            job = client.replay(job["id"])
            shown = draw(job, shown)
    finally:
        if is_terminal:
            click.echo(err=True)
    if not is_terminal:
        click.echo(describe(job), err=True)
    return job


def _redraw_line(job: dict[str, Any], shown: str) -> str:
    if (line := describe(job)) != shown:
        click.echo(f"\r\033[K{line}", err=True, nl=False)
    return line


def _print_state(job: dict[str, Any], shown: str) -> str:
    line = f"replay {job['id']} is {state_words(job)}"
    if failure := job.get("receiverFailure"):
        line += f"; {describe_failure(failure)}"
    if line != shown:
        click.echo(line, err=True)
    return line


def state_words(job: dict[str, Any]) -> str:
    """Return the state of a job, with the failures of a completed one."""
    if job.get("result") == ReplayResult.COMPLETED_WITH_FAILURES:
        return COMPLETED_WITH_FAILURES_LABEL.upper()
    return str(job["state"])


def describe_failure(failure: dict[str, Any]) -> str:
    """Return why nothing is delivered at present, and when the next attempt is due."""
    attempts, waiting = failure["failedAttempts"], failure["waitingEvents"]
    next_at = failure["nextAttemptAt"].replace("T", " ").removesuffix("Z")[:19]
    return (
        f"receiver fails: {attempts:,} failed attempts, last: {failure['lastError']}; "
        f"next attempt {next_at} UTC; {waiting:,} events wait"
    )


def describe(job: dict[str, Any]) -> str:
    """Return one line: state, bar, percentage, counts, rate, ETA, and what the job waits for."""
    share = job.get("progress") or 0.0
    filled = round(share * WIDTH)
    bar = "█" * filled + "·" * (WIDTH - filled)
    counts = job["counts"]
    words = [
        f"{state_words(job):<9} {bar} {share:4.0%}",
        f"{counts['delivered']:,} delivered",
    ]
    words += [f"{counts[name]:,} {name}" for name in ("duplicates", "failed") if counts[name]]
    if (unreadable := job.get("unreadable")) and unreadable["batches"]:
        words.append(
            f"{unreadable['batches']:,} unreadable batches skipped "
            f"({unreadable['offsets']:,} offsets)"
        )
    if job.get("eventsPerSecond"):
        words.append(f"{job['eventsPerSecond']:,.0f}/s")
    if job.get("etaSeconds") is not None:
        words.append(f"ETA {job['etaSeconds']:.0f} s")
    if job.get("waitingFor"):
        words.append(f"waiting: {job['waitingFor']}")
    if job.get("receiverFailure"):
        words.append(describe_failure(job["receiverFailure"]))
    return "  ".join(words)
