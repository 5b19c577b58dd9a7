"""`rewind replay`: ask for a replay and watch it run."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from app.cli.api_client import ApiClient, ApiRefused
from app.cli.options import api_options, load_settings, refuse
from app.cli.progress_bar import follow
from app.domain.options import (
    BATCH_EVENTS_MAX,
    EVENTS_PER_SECOND,
    EVENTS_PER_SECOND_MAX,
    IN_FLIGHT_MAX,
    Only,
    Source,
)

Command = TypeVar("Command", bound=Callable[..., None])

_OPTIONS = (
    click.option(
        "--event-type",
        "event_types",
        multiple=True,
        help="Only events of types that this glob fits (* and ?); may be given several times.",
    ),
    click.option(
        "--source",
        type=click.Choice([each.value for each in Source]),
        help="archive: a window older than the log; it waits until an operator restores it.",
    ),
    click.option(
        "--only",
        type=click.Choice([each.value for each in Only]),
        help="failed: only what no live delivery has brought.",
    ),
    click.option(
        "--max-events-per-second",
        type=click.IntRange(1, EVENTS_PER_SECOND_MAX),
        help=f"How fast, at most; {EVENTS_PER_SECOND} where absent.",
    ),
    click.option(
        "--max-in-flight",
        type=click.IntRange(1, IN_FLIGHT_MAX),
        help="Requests under way at a time; 1 keeps the order.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, BATCH_EVENTS_MAX),
        help="Events that one POST may bring, as a JSON array.",
    ),
    click.option("--target-url", help="Where to send instead of the webhook's URL."),
    click.option("--dry-run", is_flag=True, help="Only tell what would be sent."),
)


def _replay_options(command: Command) -> Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("webhook_id")
@click.option("--from", "start", required=True, help="Start of the window, inclusive.")
@click.option("--to", "end", required=True, help="End of the window, exclusive.")
@_replay_options
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow it to its end.")
@api_options
def replay(
    webhook_id: str,
    start: str,
    end: str,
    source: str | None,
    event_types: tuple[str, ...],
    only: str | None,
    max_events_per_second: int | None,
    max_in_flight: int | None,
    batch_size: int | None,
    target_url: str | None,
    dry_run: bool,
    wait: bool,
    **overrides: str | None,
) -> None:
    """Replay to WEBHOOK_ID its events of a window of event time.

    Times are RFC 3339 or yyyymmddhhmm in UTC. The job goes to standard output as JSON; the
    exit code is 0 when every event was delivered.
    """
    options = {
        "source": source,
        "eventTypes": list(event_types) or None,
        "only": only,
        "maxEventsPerSecond": max_events_per_second,
        "maxInFlight": max_in_flight,
        "batchSize": batch_size,
        "targetUrl": target_url,
        "dryRun": dry_run or None,
    }
    settings = load_settings(**overrides)
    with ApiClient.of(settings) as client:
        try:
            job = client.create_replay(webhook_id, start, end, **options)
        except ApiRefused as refusal:
            refuse(str(refusal))
        if wait and not dry_run:
            job = _followed(client, job)
    click.echo(json.dumps(job))
    if wait and not dry_run and (job["state"] != "COMPLETED" or job["counts"]["failed"]):
        refuse(_what_is_missing(job))


def _followed(client: ApiClient, job: dict[str, Any]) -> dict[str, Any]:
    try:
        return follow(client, job)
    except ApiRefused as refusal:
        refuse(f"lost sight of {job['id']}, which may go on: {refusal}")
    except KeyboardInterrupt:
        refuse(f"{job['id']} goes on; `rewind replays cancel {job['id']}` stops it")


def _what_is_missing(job: dict[str, Any]) -> str:
    """Why not everything was delivered, and what can be done about it."""
    words = [f"{job['id']} is {job['state']}"]
    if job.get("error"):
        words.append(str(job["error"]))
    if failed := job["counts"]["failed"]:
        words.append(f"{failed:,} events were given up: `rewind replays failures {job['id']}`")
        words.append(f"`rewind replays retry {job['id']}` sends them once more")
    return "; ".join(words)
