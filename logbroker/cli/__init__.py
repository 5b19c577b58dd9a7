"""The `logbroker` command and its subcommands; data goes to stdout, messages to stderr."""

import atexit
import gc
import os
from collections.abc import Mapping
from typing import Final

import click

from logbroker.lazy_group import LazyCommand, LazyGroup

COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "serve": LazyCommand(
        "logbroker.cli.serve:serve",
        "Serve the Kafka protocol from a data directory until SIGTERM or Ctrl-C.",
    ),
    "topics": LazyCommand(
        "logbroker.cli.topics:topics",
        "Create, list, describe and delete topics of a running broker.",
    ),
    "users": LazyCommand(
        "logbroker.cli.users:users",
        "Add, list and delete the users that SASL authenticates.",
    ),
    "groups": LazyCommand(
        "logbroker.cli.groups:groups",
        "List, describe, reset and delete consumer groups of a running cluster.",
    ),
    "acls": LazyCommand(
        "logbroker.cli.acls:acls",
        "List, add and remove access control lists of a running cluster.",
    ),
    "quotas": LazyCommand(
        "logbroker.cli.quotas:quotas",
        "Set, list and remove the quotas of users, client ids and IP addresses.",
    ),
    "dump": LazyCommand(
        "logbroker.cli.dump:dump",
        "Print and verify the batches and indexes of log segments.",
    ),
    "mirror": LazyCommand(
        "logbroker.cli.mirror:mirror",
        "Copy topics from one cluster to another until SIGTERM or Ctrl-C.",
    ),
    "registry": LazyCommand(
        "logbroker.cli.registry:registry",
        "Serve the REST interface of Confluent's Schema Registry until SIGTERM or Ctrl-C.",
    ),
    "audit": LazyCommand(
        "logbroker.cli.audit:audit",
        "Compare published with received messages, by the topic `audit` of a cluster.",
    ),
}


@click.command(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rewind")
def main() -> None:
    """A log broker that speaks the Apache Kafka protocol and keeps its disk format."""
    # The final garbage collection would take a fifth of a short command's time.
    atexit.register(gc.freeze)
    # Databases and logs contain secrets and payloads; their folder may be readable for everyone.
    os.umask(0o077)
