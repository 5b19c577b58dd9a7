"""`rewind demo`; `demo_run` has the implementation, whose imports --help does not need."""

import sys

import click

from app.cli.options import EXIT_FAILURE


@click.command()
@click.option(
    "--events",
    type=click.IntRange(400, 24_000),
    default=8_000,
    show_default=True,
    help="How many events the platform publishes.",
)
def demo(events: int) -> None:
    """Run an end-to-end demo of the service.

    It takes less than a minute, on a broker, API, live path and worker in a temporary directory. A
    platform publishes an hour of account activity, which is delivered to the webhooks of 40
    developers. Two receivers are down for part of the hour. One gets what it missed by a replay
    that is requested, the other by automatic recovery. The demo compares the ids of expected and
    received events. The exit code is 0 if every event was delivered exactly once.
    """
    from app.cli.demo_run import run_demo

    if not run_demo(events):
        sys.exit(EXIT_FAILURE)
