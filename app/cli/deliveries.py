"""`rewind deliveries` lists and shows deliveries, `rewind resend` sends them once more."""

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


@click.command("resend")
@click.argument("ids", nargs=-1, required=True)
@click.option("--webhook", "webhook_id", help="IDS are those of events, which it missed.")
@click.option("--from", "start", help="With --webhook: events from this time on.")
@click.option("--to", "end", help="With --webhook: events before this time.")
@api_options
def resend_command(
    ids: tuple[str, ...],
    webhook_id: str | None,
    start: str | None,
    end: str | None,
    **overrides: str | None,
) -> None:
    """Send deliveries once more. IDS are those of deliveries, or of events with --webhook.

    Prints resends as JSON, one per line. `rewind deliveries show` prints the attempts.
    """
    if webhook_id is None and (start or end):
        raise click.UsageError("--from and --to require --webhook")
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            if webhook_id is None:
                for each in ids:
                    click.echo(json.dumps(client.resend(each)))
                return
            window = {name: at for name, at in (("from", start), ("to", end)) if at}
            for resend in client.resend_events(webhook_id, eventIds=ids, **window):
                click.echo(json.dumps(resend))
        except ApiError as error:
            exit_with_error(str(error))
