"""`rewind replays`: look at replays, and say what is to become of them."""

import json
from collections.abc import Callable
from typing import Any, Final

import click

from app.cli.api_client import ApiClient, ApiRefused
from app.cli.options import api_options, load_settings, refuse
from app.domain.states import ReplayState

_LIST_MAX: Final = 200

_VERBS: Final = {
    "pause": "Pause a replay; its worker stops within two seconds.",
    "resume": "Let a paused replay go on where it stands.",
    "cancel": "Cancel a replay for good.",
    "retry": "Send once more what a replay gave up: a new replay, of that alone.",
}


@click.group()
def replays() -> None:
    """List and show replays, and pause, resume, cancel or retry them.

    Replays go to standard output as JSON, one in each line.
    """


@replays.command("list")
@click.option("--webhook-id", help="Of this webhook alone.")
@click.option("--state", type=click.Choice(list(ReplayState)), help="In this state alone.")
@click.option("--limit", type=click.IntRange(1, _LIST_MAX), default=50, show_default=True)
@api_options
def list_replays(
    webhook_id: str | None, state: str | None, limit: int, **overrides: str | None
) -> None:
    """List replays, the latest first."""
    found = _ask(
        overrides,
        lambda client: client.replays(webhookId=webhook_id, state=state, limit=limit),
    )
    for job in found:
        click.echo(json.dumps(job))


@replays.command()
@click.argument("replay_id")
@api_options
def show(replay_id: str, **overrides: str | None) -> None:
    """Show where a replay stands."""
    click.echo(json.dumps(_ask(overrides, lambda client: client.replay(replay_id))))


@replays.command()
@click.argument("replay_id")
@api_options
def failures(replay_id: str, **overrides: str | None) -> None:
    """Print what a replay has given up, and why: a JSON object in each line."""

    def print_all(client: ApiClient) -> None:
        for failure in client.failures(replay_id):
            click.echo(json.dumps(failure))

    _ask(overrides, print_all)


def _command(verb: str, help_text: str) -> click.Command:
    @click.command(verb, help=help_text)
    @click.argument("replay_id")
    @api_options
    def act(replay_id: str, **overrides: str | None) -> None:
        job = _ask(overrides, lambda client: client.act_on_replay(replay_id, verb))
        click.echo(json.dumps(job))

    return act


for name, text in _VERBS.items():
    replays.add_command(_command(name, text))


def _ask(overrides: dict[str, str | None], question: Callable[[ApiClient], Any]) -> Any:
    with ApiClient.of(load_settings(**overrides)) as client:
        try:
            return question(client)
        except ApiRefused as refusal:
            refuse(str(refusal))
