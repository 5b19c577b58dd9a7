"""`rewind webhooks`: list, show and change webhooks."""

import json

import click

from app.cli.api_client import call_api
from app.cli.options import api_options
from app.domain.endpoint_options import Ordering
from app.domain.model import WebhookStatus

_LIST_MAX = 200


@click.group()
def webhooks() -> None:
    """List, show and change webhooks.

    Prints webhooks as JSON, one per line.
    """


@webhooks.command("list")
@click.option(
    "--status", type=click.Choice(list(WebhookStatus)), help="Only webhooks with this status."
)
@click.option("--limit", type=click.IntRange(1, _LIST_MAX), default=50, show_default=True)
@api_options
def list_webhooks(status: str | None, limit: int, **overrides: str | None) -> None:
    """List webhooks, latest first."""
    for webhook in call_api(overrides, lambda client: client.webhooks(status=status, limit=limit)):
        click.echo(json.dumps(webhook))


@webhooks.command()
@click.argument("webhook_id")
@api_options
def show(webhook_id: str, **overrides: str | None) -> None:
    """Show a webhook."""
    click.echo(json.dumps(call_api(overrides, lambda client: client.webhook(webhook_id))))


@webhooks.command()
@click.argument("webhook_id")
@click.option("--url", help="Send events to this URL, once its receiver is verified.")
@click.option("--description", help="Free text.")
@click.option(
    "--event-type",
    "event_types",
    multiple=True,
    help="Glob of the rule `default` (* and ?), in place of its present ones. Repeatable.",
)
@click.option(
    "--auto-recovery/--no-auto-recovery",
    default=None,
    help="Whether a replay sends what the webhook missed, once its receiver is back.",
)
@click.option(
    "--ordering",
    type=click.Choice([str(each) for each in Ordering]),
    help="Whether new events wait for earlier ones, also during a recovery.",
)
@click.option(
    "--retry-schedule",
    callback=lambda _context, _option, text: _pauses_s(text),
    help="Seconds before each retry of an event, separated by commas.",
)
@api_options
def update(
    webhook_id: str,
    url: str | None,
    description: str | None,
    event_types: tuple[str, ...],
    auto_recovery: bool | None,
    ordering: str | None,
    retry_schedule: list[int] | None,
    **overrides: str | None,
) -> None:
    """Change a webhook. What is not given stays as it is."""
    members = {
        "url": url,
        "description": description,
        "eventTypes": list(event_types) or None,
        "autoRecovery": auto_recovery,
        "ordering": ordering,
        "retrySchedule": retry_schedule,
    }
    changes: dict[str, object] = {
        name: value for name, value in members.items() if value is not None
    }
    if not changes:
        raise click.UsageError("no change given; see --help for the options")
    webhook = call_api(overrides, lambda client: client.update_webhook(webhook_id, changes))
    click.echo(json.dumps(webhook))


def _pauses_s(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(each) for each in text.split(",")]
    except ValueError:
        raise click.BadParameter("allowed are whole seconds with commas between") from None
