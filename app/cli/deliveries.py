"""`rewind deliveries` lists and shows deliveries, `rewind resend` sends them once more."""

import json
from collections.abc import Iterator
from typing import Any

import click

from app.cli.api_client import ApiClient, ApiError
from app.cli.options import api_options, exit_with_error, load_settings
from app.domain.deliveries import DeliveryStatus

_LIST_MAX = 10_000


@click.group()
def deliveries() -> None:
    """List deliveries of a webhook or of several, and show one with its attempts.

    Prints deliveries as JSON, one per line.
    """


@deliveries.command("list")
@click.argument("webhook_id", required=False)
@click.option(
    "--status",
    type=click.Choice([each.value for each in DeliveryStatus]),
    help="Only deliveries with this status. Default without WEBHOOK_ID: failed.",
)
@click.option("--event-type", help="Only events of this type; may have wildcards.")
@click.option("--event-id", help="With WEBHOOK_ID: only deliveries of this event.")
@click.option("--account-id", help="Without WEBHOOK_ID, for operators: only of this account.")
@click.option("--from", "start", help="Events from this time on. Default: a day before --to.")
@click.option("--to", "end", help="Events before this time. Default: now.")
@click.option("--limit", type=click.IntRange(1, _LIST_MAX), default=50, show_default=True)
@api_options
def list_deliveries(
    webhook_id: str | None,
    status: str | None,
    event_type: str | None,
    event_id: str | None,
    account_id: str | None,
    start: str | None,
    end: str | None,
    limit: int,
    **overrides: str | None,
) -> None:
    """List deliveries of a webhook: pending ones, then the others, last settled first.

    Without WEBHOOK_ID, list the failed, pending or skipped deliveries of the ten webhooks that
    have most of them, the latest first. Says on stderr which other webhooks have some.
    """
    filters = {"status": status, "eventType": event_type, "from": start, "to": end}
    if webhook_id is None and event_id is not None:
        raise click.UsageError("--event-id requires WEBHOOK_ID; see also `rewind events get`")
    if webhook_id is not None and account_id is not None:
        raise click.UsageError("--account-id allows no WEBHOOK_ID")
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            found = (
                _undelivered(client, limit, filters | {"accountId": account_id})
                if webhook_id is None
                else client.deliveries(webhook_id, limit, **filters, eventId=event_id)
            )
            for delivery in found:
                click.echo(json.dumps(delivery))
        except ApiError as error:
            exit_with_error(str(error))


def _undelivered(
    client: ApiClient, limit: int, filters: dict[str, str | None]
) -> Iterator[dict[str, Any]]:
    status = filters["status"] or DeliveryStatus.FAILED.value
    page = None
    for page in client.undelivered_pages(limit, **filters | {"status": status}):
        yield from page["items"]
    if page is not None and page["omittedWebhooks"]:
        count, ids = page["omittedWebhooks"], page["omittedWebhookIds"]
        click.echo(f"rewind: webhooks with {status} events that are not listed: {count}", err=True)
        for each in ids:
            click.echo(each, err=True)


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
