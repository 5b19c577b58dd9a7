"""`rewind replay`: ask for a replay and watch it run."""

import json
import sys

import click

from app.cli.api_client import ApiClient, ApiRefused
from app.cli.options import EXIT_REFUSED, api_options, load_settings, refuse
from app.cli.progress_bar import follow


@click.command()
@click.argument("webhook_id")
@click.option("--from", "start", required=True, help="Start of the window, inclusive.")
@click.option("--to", "end", required=True, help="End of the window, exclusive.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Follow it to its end.")
@api_options
def replay(webhook_id: str, start: str, end: str, wait: bool, **overrides: str | None) -> None:
    """Replay to WEBHOOK_ID what it was owed in a window of event time.

    Times are RFC 3339 or yyyymmddhhmm in UTC. The job goes to standard output as JSON; the
    exit code is 0 when every event was delivered.
    """
    settings = load_settings(**overrides)
    with ApiClient.of(settings) as client:
        try:
            job = client.create_replay(webhook_id, start, end)
        except ApiRefused as refusal:
            refuse(str(refusal))
        try:
            if wait:
                job = follow(client, job)
        except ApiRefused as refusal:
            refuse(f"lost sight of {job['id']}, which may go on: {refusal}")
    click.echo(json.dumps(job))
    if wait and (job["state"] != "COMPLETED" or job["counts"]["failed"]):
        sys.exit(EXIT_REFUSED)
