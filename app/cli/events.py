"""`rewind events` looks up events by their ids."""

import json

import click

from app.cli.api_client import ApiClient, ApiError
from app.cli.options import api_options, exit_with_error, load_settings


@click.group()
def events() -> None:
    """Look up events by their ids."""


@events.command()
@click.argument("event_id")
@api_options
def get(event_id: str, **overrides: str | None) -> None:
    """Print an event as JSON: its payload and its deliveries."""
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            click.echo(json.dumps(client.event(event_id)))
        except ApiError as error:
            exit_with_error(str(error))
