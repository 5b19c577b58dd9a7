"""The `logbroker` command: one verb, one subcommand; stdout is data, stderr is talk."""

import click

from logbroker.cli.dump import dump
from logbroker.cli.groups import groups
from logbroker.cli.serve import serve
from logbroker.cli.topics import topics


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rewind")
def main() -> None:
    """A log broker that speaks the Apache Kafka protocol and keeps its disk format."""


main.add_command(serve)
main.add_command(topics)
main.add_command(groups)
main.add_command(dump)
