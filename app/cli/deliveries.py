"""`rewind deliveries`: list and show deliveries."""

import json

import click

from app.cli.api_client import ApiClient, ApiError
from app.cli.options import api_options, exit_with_error, load_settings
from app.domain.deliveries import DeliveryStatus

_LIST_MAX = 10_000


@click.group()
def deliveries() -> None:
    """List the deliveries of a webhook, and show one with its attempts.

    Prints deliveries as JSON, one per line.
    """


@deliveries.command("list")
@click.argument("webhook_id")
@click.option(
    "--status",
    type=click.Choice([each.value for each in DeliveryStatus]),
    help="Only deliveries with this status.",
)
@click.option("--event-type", help="Only events of this type; may have wildcards.")
@click.option("--event-id", help="Only deliveries of this event.")
@click.option("--from", "start", help="Events from this time on. Default: a day before --to.")
@click.option("--to", "end", help="Events before this time. Default: now.")
@click.option("--limit", type=click.IntRange(1, _LIST_MAX), default=50, show_default=True)
@api_options
def list_deliveries(
    webhook_id: str,
    status: str | None,
    event_type: str | None,
    event_id: str | None,
    start: str | None,
    end: str | None,
    limit: int,
    **overrides: str | None,
) -> None:
    """List deliveries of a webhook: pending ones, then the others, last settled first."""
    filters = {"status": status, "eventType": event_type, "eventId": event_id}
    filters |= {"from": start, "to": end}
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            for delivery in client.deliveries(webhook_id, limit, **filters):
                click.echo(json.dumps(delivery))
        except ApiError as error:
            exit_with_error(str(error))


@deliveries.command()
@click.argument("delivery_id")
@api_options
def show(delivery_id: str, **overrides: str | None) -> None:
    """Show a delivery: its payload, its status and its attempts."""
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            click.echo(json.dumps(client.delivery(delivery_id)))
        except ApiError as error:
            exit_with_error(str(error))
