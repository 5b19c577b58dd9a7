"""`rewind replays`: list, show and control replays."""

import json
from typing import Final

import click

from app.cli.api_client import ApiClient, call_api
from app.cli.options import api_options
from app.domain.options import ReplayReason
from app.domain.states import ReplayState

_LIST_MAX: Final = 200

_VERBS: Final = {
    "pause": "Pause a replay. Its worker stops within two seconds.",
    "resume": "Resume a paused or failed replay at its checkpoint.",
    "cancel": "Cancel a replay. It cannot be resumed.",
    "retry": "Create a replay of what an ended one did not deliver.",
}


@click.group()
def replays() -> None:
    """List and show replays, and pause, resume, cancel or retry them.

    Prints replays as JSON, one per line.
    """


@replays.command("list")
@click.option("--webhook-id", help="Only replays of this webhook.")
@click.option("--state", type=click.Choice(list(ReplayState)), help="Only replays in this state.")
@click.option("--with-failures", is_flag=True, help="Only replays with failed events.")
@click.option(
    "--reason",
    type=click.Choice([each.value for each in ReplayReason]),
    help="recovery: only replays of what webhooks missed while their receivers failed.",
)
@click.option("--limit", type=click.IntRange(1, _LIST_MAX), default=50, show_default=True)
@api_options
def list_replays(
    webhook_id: str | None,
    state: str | None,
    with_failures: bool,
    reason: str | None,
    limit: int,
    **overrides: str | None,
) -> None:
    """List replays, latest first."""
    found = call_api(
        overrides,
        lambda client: client.replays(
            webhookId=webhook_id,
            state=state,
            withFailures="true" if with_failures else None,
            reason=reason,
            limit=limit,
        ),
    )
    for job in found:
        click.echo(json.dumps(job))


@replays.command()
@click.argument("replay_id")
@api_options
def show(replay_id: str, **overrides: str | None) -> None:
    """Show a replay."""
    click.echo(json.dumps(call_api(overrides, lambda client: client.replay(replay_id))))


@replays.command()
@click.argument("replay_id")
@api_options
def failures(replay_id: str, **overrides: str | None) -> None:
    """Print the failed events of a replay with their reasons, one JSON object per line."""

    def print_all(client: ApiClient) -> None:
        for failure in client.failures(replay_id):
            click.echo(json.dumps(failure))

    call_api(overrides, print_all)


def _command(verb: str, help_text: str) -> click.Command:
    @click.command(verb, help=help_text)
    @click.argument("replay_id")
    @api_options
    def act(replay_id: str, **overrides: str | None) -> None:
        job = call_api(overrides, lambda client: client.act_on_replay(replay_id, verb))
        click.echo(json.dumps(job))

    return act


for name, text in _VERBS.items():
    replays.add_command(_command(name, text))
