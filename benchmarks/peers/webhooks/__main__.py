"""Measure a webhook system that runs elsewhere and print a table; see `--help`."""

import sys
from collections.abc import Sequence

import click

from benchmarks.peers.webhooks import measuring
from benchmarks.peers.webhooks.marked_receiver import marked_receiver
from benchmarks.peers.webhooks.measuring import Stage
from benchmarks.peers.webhooks.systems import Convoy, Outpost, Rewind, Svix, WebhookSystem
from benchmarks.table import Group, print_group, print_head


@click.command()
@click.option("--rewind", metavar="URL", help="The address of Rewind's API.")
@click.option("--svix", metavar="URL", help="The address of a Svix server.")
@click.option("--convoy", metavar="URL", help="The address of a Convoy server.")
@click.option("--project", metavar="ID", help="The project of Convoy; its key is the token.")
@click.option("--outpost", metavar="URL", help="The address of an Outpost server.")
@click.option("--token", required=True, help="The key that the API accepts as a bearer token.")
@click.option(
    "--pid",
    "pids",
    type=int,
    multiple=True,
    help="A process of the system, its database or queue, whose processor time is measured with "
    "that of its children; may be repeated.",
)
@click.option("--listen", default="127.0.0.1", show_default=True, help="The receiver's address.")
@click.option(
    "--receiver-host", help="The name by which the system reaches the receiver; else its address."
)
@click.option("--quick", is_flag=True, help="Few events, to check that the system answers.")
def main(
    rewind: str | None,
    svix: str | None,
    convoy: str | None,
    project: str | None,
    outpost: str | None,
    token: str,
    pids: tuple[int, ...],
    listen: str,
    receiver_host: str | None,
    quick: bool,
) -> None:
    """Measure one webhook system, with a receiver of this program.

    The system must try each delivery once: without automatic retries, which would be measured in
    place of the feature that brings missed events.
    """
    system = _system(rewind, svix, convoy, project, outpost, token)
    scale = measuring.QUICK if quick else measuring.FULL
    with system, marked_receiver(listen) as receiver:
        receiver_url = f"http://{receiver_host or listen}:{receiver.port}/hook"
        cost = measuring.Cost(pids)
        stages = measuring.measure(system, receiver, receiver_url, cost, scale)
    print_head()
    lines = [line for stage in stages for line in stage.lines]
    print_group(Group(f"{system.name} at {system.url}", lines))
    check_arrivals(stages, receiver_url)


def check_arrivals(stages: Sequence[Stage], receiver_url: str) -> None:
    """Check that events have arrived in each stage.

    Raises:
        ClickException: there are stages without arrivals, which the message names.
    """
    silent = [stage.name for stage in stages if not stage.has_arrivals]
    if silent:
        raise click.ClickException(
            f"no event arrived: stages={', '.join(silent)}; receiver={receiver_url}; "
            "see the log of the system, and whether it can reach the receiver"
        )


def _system(
    rewind: str | None,
    svix: str | None,
    convoy: str | None,
    project: str | None,
    outpost: str | None,
    token: str,
) -> WebhookSystem:
    match rewind, svix, convoy, outpost:
        case str(url), None, None, None:
            return Rewind(url, token)
        case None, str(url), None, None:
            return Svix(url, token)
        case None, None, str(url), None:
            if project is None:
                raise click.UsageError("--convoy needs --project")
            return Convoy(url, token, project)
        case None, None, None, str(url):
            return Outpost(url, token)
    raise click.UsageError("give one of --rewind, --svix, --convoy and --outpost")


if __name__ == "__main__":
    sys.exit(main())
