"""The `rewind` command with its subcommands. Data goes to stdout, messages to stderr."""

import atexit
import gc
import os
from collections.abc import Mapping
from typing import Final

import click

from logbroker.lazy_group import LazyCommand, LazyGroup

COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "up": LazyCommand(
        "app.cli.up:up",
        "Run the complete service on this machine.",
    ),
    "demo": LazyCommand(
        "app.cli.demo:demo",
        "Run an end-to-end demo of the service.",
    ),
    "api": LazyCommand(
        "app.cli.servers:api",
        "Serve the HTTP API and the console.",
    ),
    "worker": LazyCommand(
        "app.cli.servers:worker",
        "Run replays.",
    ),
    "live": LazyCommand(
        "app.cli.servers:live",
        "Match events with rules and deliver them.",
    ),
    "webhooks": LazyCommand("app.cli.webhooks:webhooks", "List, show and change webhooks."),
    "notice-endpoints": LazyCommand(
        "app.cli.notice_endpoints:notice_endpoints",
        "Manage the URLs that get notices about an account's webhooks and replays.",
    ),
    "replay": LazyCommand(
        "app.cli.replay:replay",
        "Create a replay and wait until it has ended.",
    ),
    "replays": LazyCommand(
        "app.cli.replays:replays",
        "List and show replays, and pause, resume, cancel or retry them.",
    ),
    "events": LazyCommand("app.cli.events:events", "Look up events by their ids."),
    "deliveries": LazyCommand(
        "app.cli.deliveries:deliveries",
        "List deliveries of a webhook or of several, and show one with its attempts.",
    ),
    "resend": LazyCommand("app.cli.deliveries:resend_command", "Send deliveries once more."),
    "publish": LazyCommand(
        "app.cli.publish:publish",
        "Publish the events of FILE.",
    ),
    "listen": LazyCommand(
        "app.cli.listen:listen",
        "Receive webhooks and print them.",
    ),
    "migrate": LazyCommand(
        "app.cli.migrate:migrate",
        "Create or upgrade the database tables.",
    ),
    "accounts": LazyCommand(
        "app.cli.accounts:accounts",
        "Create and list accounts.",
    ),
    "grants": LazyCommand(
        "app.cli.grants:grants",
        "Create, list and delete the grants of an account.",
    ),
    "secrets": LazyCommand(
        "app.cli.secrets:secrets",
        "Manage the keys that encrypt the secrets of webhooks.",
    ),
    "keys": LazyCommand(
        "app.cli.keys:keys",
        "Create, list and revoke API keys.",
    ),
}


@click.command(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    extra="service",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rewind")
def main() -> None:
    """Replay-as-a-service over a log: deliver missed webhooks again."""
    # A garbage collection at exit takes a fifth of a short command's time.
    atexit.register(gc.freeze)
    # Databases and logs contain secrets and payloads; their folder may be readable for everyone.
    os.umask(0o077)
