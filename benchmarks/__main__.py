"""Run the benchmarks and print one table; see `--help`."""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from benchmarks import (
    api_cost,
    audit_cost,
    broker_fetch,
    broker_produce,
    claim_rate,
    cluster_scaling,
    console_cost,
    delivery_lookups,
    disk_overhead,
    group_rebalance,
    idle_cost,
    librdkafka_clients,
    live_path,
    live_spread,
    log_compaction,
    log_opening,
    machine,
    metadata_cost,
    mirror_copy,
    mutated_requests,
    nightly_load,
    receiver_latency,
    record_decoding,
    record_validation,
    replay_cost,
    replay_start,
    rule_matching,
    schema_lookups,
    single_events,
    soak,
    tls_cost,
    webhook_lines,
    worker_memory,
    worker_speed,
    worker_turns,
)
from benchmarks.scale import FULL, QUICK, Scale
from benchmarks.table import Group, Line, print_group, print_head, verdict

Measure = Callable[[Scale, Path], list[Line]]

GROUPS: Final[Mapping[str, tuple[str, Measure]]] = {
    "produce": ("Produce, raw load, 200-byte messages, one partition", broker_produce.measure),
    "validation": ("Validation of records before they are stored", record_validation.measure),
    "fetch": ("Fetch from page cache, raw load", broker_fetch.measure),
    "cluster": ("Brokers of one cluster on this machine", cluster_scaling.measure),
    "rebalance": (
        "One of 4 consumers dies: from detection to first message, 12 partitions",
        group_rebalance.measure,
    ),
    "metadata": ("A cluster of many topics, 8 partitions each", metadata_cost.measure),
    "mutated": ("Mutated requests next to a stock client", mutated_requests.measure),
    "librdkafka": ("librdkafka, 200-byte messages, one partition", librdkafka_clients.measure),
    "tls": ("TLS, librdkafka, 200-byte messages, one partition", tls_cost.measure),
    "overhead": ("Bytes on disk, 200-byte messages", disk_overhead.measure),
    "opening": ("Start on a large log, cold page cache", log_opening.measure),
    "compaction": ("Compaction of a log, 200-byte messages with keys", log_compaction.measure),
    "replay": ("Replay of one window from logs of different lengths", replay_cost.measure),
    "start": ("From `POST /replays` to the first event", replay_start.measure),
    "latency": (
        "Replays from one worker to receivers of different latency",
        receiver_latency.measure,
    ),
    "deliveries": (
        "Look-ups of deliveries in logs of different lengths",
        delivery_lookups.measure,
    ),
    "single": ("Single events, from `POST /events` to local receivers", single_events.measure),
    "live": ("The live path, from `events` to local receivers", live_path.measure),
    "spread": ("The live path, events for few and for many webhooks", live_spread.measure),
    "rules": ("Finding the webhooks for an event, by the number of rules", rule_matching.measure),
    "worker": ("Replays from one worker process to a local receiver", worker_speed.measure),
    "memory": ("Memory of a worker process with its default settings", worker_memory.measure),
    "idle": ("`rewind up` with SQLite while nothing happens", idle_cost.measure),
    "claims": ("Claims of replays by worker processes", claim_rate.measure),
    "turns": ("A short replay next to 100 long ones of another account", worker_turns.measure),
    "console": (
        "The console, 10,000 jobs on MariaDB, one of them running",
        console_cost.measure,
    ),
    "api": ("The API: authentication and rate limit per request, and publishing", api_cost.measure),
    "mirror": ("A mirror from one broker to another", mirror_copy.measure),
    "audit": ("Audit of producers and consumers, 200-byte messages", audit_cost.measure),
    "schemas": ("Schemas by id, and events in Avro", schema_lookups.measure),
    "decoding": ("Record batches to Arrow columns, 200-byte values, keys", record_decoding.measure),
    "load": ("The nightly load, from a topic into Parquet, 200-byte values", nightly_load.measure),
    "webhooks": ("Webhooks from one process to a local receiver", webhook_lines.measure),
    "soak": ("Memory under a steady load", soak.measure),
}

DEFAULT_GROUPS: Final = tuple(name for name in GROUPS if name != "soak")
"""The soak takes as long as all others together."""


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice(list(GROUPS)))
@click.option(
    "--quick",
    is_flag=True,
    help="One short round of every group, to check that the benchmarks work.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Folder for the logs; the system's folder for temporary files by default.",
)
def main(groups: tuple[str, ...], quick: bool, folder: Path | None) -> None:
    """Measure GROUPS, or all but `soak`, and print a table.

    Each figure is the median of three rounds, and is compared with a baseline of the same rounds.
    """
    scale = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="rewind-bench-", dir=folder) as scratch:
        print(machine.describe(Path(scratch)))
        rounds = "one round" if scale.rounds == 1 else f"medians of {scale.rounds} rounds"
        print(f"{rounds}; ratio = figure / baseline\n")
        print_head()
        measured = [_measure(name, scale, Path(scratch)) for name in groups or DEFAULT_GROUPS]
    print(f"\n{verdict(measured)}")


def _measure(name: str, scale: Scale, folder: Path) -> Group:
    title, measure = GROUPS[name]
    start = time.monotonic()
    group = Group(title, measure(scale, folder))
    print_group(group)
    click.echo(f"[{name}: {time.monotonic() - start:.0f} s]", err=True)
    return group


if __name__ == "__main__":
    sys.exit(main())
