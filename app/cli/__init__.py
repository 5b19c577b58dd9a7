"""The `rewind` command with its subcommands. Data goes to stdout, messages to stderr."""

import atexit
import gc
from collections.abc import Mapping
from typing import Final

import click

from logbroker.lazy_group import LazyCommand, LazyGroup

COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "up": LazyCommand(
        "app.cli.up:up",
        "Run brokers, API, live path and worker until Ctrl-C. Data is kept in the data directory.",
    ),
    "demo": LazyCommand(
        "app.cli.demo:demo",
        "Run an end-to-end demo; exit 0 if every event was delivered exactly once.",
    ),
    "api": LazyCommand(
        "app.cli.servers:api",
        "Serve the HTTP API, and the console at /console, until SIGTERM or Ctrl-C.",
    ),
    "worker": LazyCommand(
        "app.cli.servers:worker",
        "Run replays until SIGTERM or Ctrl-C. Other workers take over unfinished ones.",
    ),
    "live": LazyCommand(
        "app.cli.servers:live",
        "Match events with rules and deliver them, until SIGTERM or Ctrl-C.",
    ),
    "replay": LazyCommand(
        "app.cli.replay:replay",
        "Replay the events of WEBHOOK_ID in a window of event time.",
    ),
    "replays": LazyCommand(
        "app.cli.replays:replays",
        "List and show replays, and pause, resume, cancel or retry them.",
    ),
    "publish": LazyCommand(
        "app.cli.publish:publish",
        "Publish the events of FILE, one JSON object per line; `-` is standard input.",
    ),
    "listen": LazyCommand(
        "app.cli.listen:listen",
        "Receive webhooks on every path and print a line for each, until Ctrl-C.",
    ),
    "migrate": LazyCommand(
        "app.cli.migrate:migrate",
        "Create or upgrade the tables. Running it again has no effect.",
    ),
    "keys": LazyCommand(
        "app.cli.keys:keys",
        "Create, list and revoke API keys.",
    ),
}


@click.command(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rewind")
def main() -> None:
    """Replay-as-a-service over a log: deliver missed webhooks again."""
    # A garbage collection at exit takes a fifth of a short command's time.
    atexit.register(gc.freeze)
