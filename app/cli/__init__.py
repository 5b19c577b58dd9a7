"""The `rewind` command: one verb, one subcommand; stdout is data, stderr is talk."""

import click

from app.cli.demo import demo
from app.cli.keys import keys
from app.cli.listen import listen
from app.cli.migrate import migrate
from app.cli.publish import publish
from app.cli.replay import replay
from app.cli.replays import replays
from app.cli.servers import api, live, worker
from app.cli.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rewind")
def main() -> None:
    """Replay-as-a-service over a log: webhooks that were missed are delivered again."""


for command in (up, demo, api, worker, live, replay, replays, publish, listen, migrate, keys):
    main.add_command(command)
