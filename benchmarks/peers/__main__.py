"""Measure logbroker and other brokers side by side and print tables; see `--help`."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from benchmarks import machine
from benchmarks.peers import kafka_clients, rounds
from benchmarks.peers.peer import PeerUnavailable
from benchmarks.peers.plots import write_plots
from benchmarks.peers.tables import client_group, groups, qualified
from benchmarks.table import Group, print_group, print_head, verdict

KAFKA_CLIENTS: Final = "kafka-clients"
"""The name of the comparison with Apache Kafka alone, by more clients."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*rounds.PEERS, KAFKA_CLIENTS]))
@click.option(
    "--quick", is_flag=True, help="One short round of every broker, to check that all of them work."
)
@click.option(
    "--rounds",
    "round_count",
    type=click.IntRange(1),
    help="How often each broker is measured; 3 by default, and 1 with --quick.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder for the logs; the system's folder for temporary files by default.",
)
@click.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for plots of the rates over the course of a run, as SVG.",
)
def main(
    names: tuple[str, ...],
    quick: bool,
    round_count: int | None,
    folder: Path | None,
    plots: Path | None,
) -> None:
    """Measure the brokers NAMES, or all of them.

    Each figure is the median of the rounds, in which the brokers take turns. Brokers that cannot
    be started here are listed with the reason.
    """
    chosen = names or (*rounds.PEERS, KAFKA_CLIENTS)
    brokers = [name for name in chosen if name != KAFKA_CLIENTS]
    scale = rounds.QUICK if quick else rounds.FULL
    scale = scale._replace(rounds=round_count or scale.rounds)
    with tempfile.TemporaryDirectory(prefix="rewind-peers-", dir=folder) as scratch:
        print(machine.describe(Path(scratch)))
        print(f"load average before the start: {os.getloadavg()[0]:.2g}")
        results = rounds.measure(brokers, scale, Path(scratch))
        _print_brokers(results)
        shown = "one round" if scale.rounds == 1 else f"medians of {scale.rounds} rounds"
        print(f"{shown}; ratio = figure / baseline; met = logbroker is at least as good\n")
        print_head()
        compared = groups(results)
        for group in [*compared, client_group(results)] if compared else ():
            print_group(group)
        if KAFKA_CLIENTS in chosen:
            client_scale = kafka_clients.QUICK if quick else kafka_clients.FULL
            client_scale = client_scale._replace(rounds=scale.rounds)
            compared += _measure_kafka_clients(client_scale, Path(scratch))
    print(f"\n{verdict(map(qualified, compared))}")
    for path in write_plots(results, plots) if plots else ():
        click.echo(f"written: {path}", err=True)


def _print_brokers(results: rounds.Results) -> None:
    """Print version and settings of each broker, or the reason why it was not measured."""
    for name, peer in rounds.PEERS.items():
        if name in results.versions:
            print(f"{peer.title}: version {results.versions[name]}; {peer.settings}")
        if name in results.unavailable:
            print(f"{peer.title}: not measured: {results.unavailable[name]}")


def _measure_kafka_clients(scale: kafka_clients.ClientScale, folder: Path) -> list[Group]:
    """Measure and print the comparison with Apache Kafka alone."""
    title = "logbroker beside Apache Kafka, 200-byte messages, other clients"
    try:
        group = Group(title, kafka_clients.measure(scale, folder))
    except PeerUnavailable as error:
        print(f"\n{title}\nnot measured: {error}")
        return []
    print_group(group)
    return [group]


if __name__ == "__main__":
    sys.exit(main())
