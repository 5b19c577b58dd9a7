"""`rewind demo`: the command alone; `demo_run` is what it runs."""

import sys

import click

from app.cli.options import EXIT_REFUSED


@click.command()
def demo() -> None:
    """Run an end-to-end demo on this machine; exit 0 only if the proof holds.

    It takes less than a minute. A broker, the API, the live path and a worker start on a temporary
    folder. A platform publishes an hour of account activity, and each event is delivered to the
    webhooks that it concerns; one receiver goes down for part of the hour. The demo requests a
    replay, and compares, by event id, what this receiver got with what it should have got.
    """
    from app.cli.demo_run import run_demo

    if not run_demo():
        sys.exit(EXIT_REFUSED)
