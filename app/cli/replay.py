"""`rewind replay`: create a replay and follow its progress."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from app.cli.api_client import ApiClient, ApiError
from app.cli.options import api_options, exit_with_error, load_settings
from app.cli.progress_bar import follow, state_words
from app.domain.options import (
    BATCH_EVENTS_MAX,
    EVENTS_PER_SECOND,
    EVENTS_PER_SECOND_MAX,
    IN_FLIGHT_MAX,
    Only,
    ReplayReason,
    Source,
)
from logbroker.option_group import option_group


@dataclass(frozen=True, slots=True)
class _ReplayOptions:
    """Which events to replay, and how."""

    event_types: tuple[str, ...]
    source: str | None
    only: str | None
    max_events_per_second: int | None
    max_in_flight: int | None
    batch_size: int | None
    target_url: str | None
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the options as members of the request."""
        return {
            "source": self.source,
            "eventTypes": list(self.event_types) or None,
            "only": self.only,
            "maxEventsPerSecond": self.max_events_per_second,
            "maxInFlight": self.max_in_flight,
            "batchSize": self.batch_size,
            "targetUrl": self.target_url,
            "dryRun": self.dry_run or None,
        }


_replay_options = option_group(
    "options",
    _ReplayOptions,
    click.option(
        "--event-type",
        "event_types",
        multiple=True,
        help="Only event types that match this glob (* and ?). Repeatable.",
    ),
    click.option(
        "--source",
        type=click.Choice([each.value for each in Source]),
        help="archive: for windows older than the log; waits for a restore by an operator.",
    ),
    click.option(
        "--only",
        type=click.Choice([each.value for each in Only]),
        help="failed: only events not yet delivered.",
    ),
    click.option(
        "--max-events-per-second",
        type=click.IntRange(1, EVENTS_PER_SECOND_MAX),
        help=f"Rate limit. Default: {EVENTS_PER_SECOND}.",
    ),
    click.option(
        "--max-in-flight",
        type=click.IntRange(1, IN_FLIGHT_MAX),
        help="Maximum of concurrent requests; 1 preserves order.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, BATCH_EVENTS_MAX),
        help="Maximum of events per request; above 1, the body is a JSON array.",
    ),
    click.option("--target-url", help="URL that replaces the webhook's URL."),
    click.option("--dry-run", is_flag=True, help="Only show how many events would be sent."),
)


@click.command()
@click.argument("webhook_id")
@click.option("--from", "start", required=True, help="Start of the window, inclusive.")
@click.option("--to", "end", required=True, help="End of the window, exclusive.")
@_replay_options
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until the replay has ended."
)
@api_options
def replay(
    webhook_id: str,
    start: str,
    end: str,
    options: _ReplayOptions,
    wait: bool,
    **overrides: str | None,
) -> None:
    """Create a replay and wait until it has ended.

    It sends the events of WEBHOOK_ID in a window of event time again. Times are RFC 3339, or
    yyyymmddhhmm in UTC. Prints the job as JSON. The exit code is 0 if every event was delivered.
    While a recovery replay of the webhook is active, it waits for its end first.
    """
    settings = load_settings(**overrides)
    with ApiClient.of(settings) as client:
        create = partial(client.create_replay, webhook_id, start, end, **options.document())
        try:
            job = _create_after_recovery(client, create) if wait else create()
        except ApiError as error:
            exit_with_error(str(error))
        if wait and not options.dry_run:
            job = _follow_to_end(client, job)
    click.echo(json.dumps(job))
    if wait and not options.dry_run and (job["state"] != "COMPLETED" or job["counts"]["failed"]):
        exit_with_error(_describe_failure(job))


def _create_after_recovery(
    client: ApiClient, create: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Create a replay as soon as the webhook has no active recovery replay.

    Raises:
        ApiError: the API refuses the replay for another reason.
    """
    while True:
        try:
            return create()
        except ApiError as error:
            active = error.active_replay_id and client.replay(error.active_replay_id)
            if not active or active["reason"] != ReplayReason.RECOVERY:
                raise
        click.echo(f"waiting for the recovery replay {active['id']} of the webhook", err=True)
        try:
            follow(client, active)
        except KeyboardInterrupt:
            exit_with_error("no replay was created; the recovery replay continues")


def _follow_to_end(client: ApiClient, job: dict[str, Any]) -> dict[str, Any]:
    try:
        return follow(client, job)
    except ApiError as error:
        exit_with_error(f"lost track of {job['id']}, which may still be running: {error}")
    except KeyboardInterrupt:
        exit_with_error(
            f"{job['id']} is still running; cancel it with `rewind replays cancel {job['id']}`"
        )


def _describe_failure(job: dict[str, Any]) -> str:
    """Return why events were not delivered, and how to retry them."""
    words = [f"{job['id']} is {state_words(job)}"]
    if job.get("error"):
        words.append(str(job["error"]))
    if failed := job["counts"]["failed"]:
        words.append(f"{failed:,} events failed: `rewind replays failures {job['id']}`")
        words.append(f"retry them with `rewind replays retry {job['id']}`")
    return "; ".join(words)
