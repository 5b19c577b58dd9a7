"""`rewind-jobs restore`: events that the log has deleted, back for replays of the archive."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from pyspark.sql import SparkSession

from logbroker.client.partitioner import partition_for_key
from logbroker.client.raw import LATEST, RawCluster, TopicPartition
from spark_jobs.cli.options import (
    bootstrap_servers_option,
    client_config_option,
    client_properties,
    echo_json,
    json_option,
    master_option,
    plain_refusals,
    table_option,
)
from spark_jobs.cli.refusal import refuse
from spark_jobs.cli.telling import api_key_file_option, service_address, told
from spark_jobs.errors import InvalidOption, PipelineError
from spark_jobs.jobs.restore.archive import ArchiveTopic
from spark_jobs.jobs.restore.job import DELIVERY_LOG, Done, Restore, Restored, Wanted, restore_all
from spark_jobs.jobs.restore.service import ReplayService
from spark_jobs.jobs.service import ServiceAddress
from spark_jobs.jobs.telling import Facts
from spark_jobs.log.failures import translated
from spark_jobs.session import session_on_demand

PAUSE_S: Final = 60.0

LATE_MS: Final = 15 * 60_000
"""By hand, records are looked for up to the first that is so much younger than the window."""

_TIME: Final = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%Y%m%d%H%M"])

Session = Callable[[], SparkSession]


@click.command()
@table_option
@bootstrap_servers_option
@client_config_option
@click.option(
    "--api",
    metavar="URL",
    help="The replay service, which says what is to be restored, and is told what was.",
)
@api_key_file_option
@click.option(
    "--once", is_flag=True, help="End when all that waits is done; else look each minute."
)
@click.option("--webhook", metavar="ID", help="By hand: the events of this webhook.")
@click.option("--from", "start", type=_TIME, help="By hand: from this time, UTC, on.")
@click.option("--to", "end", type=_TIME, help="By hand: and before this one.")
@click.option(
    "--topic", default="delivery_archive", show_default=True, help="Where they are published to."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(-1, 100),
    default=-1,
    show_default=True,
    help="Of that topic, when it is made; -1 is the log's own default.",
)
@master_option
@json_option
def restore(
    table: str,
    bootstrap_servers: str,
    client_config: Path | None,
    api: str | None,
    api_key_file: Path | None,
    once: bool,
    webhook: str | None,
    start: datetime | None,
    end: datetime | None,
    topic: str,
    replication_factor: int,
    master: str | None,
    as_json: bool,
) -> None:
    """Publish deleted events again, from the raw table, for replays that wait for them.

    With --api, the service is asked which replays wait, and told where their events lie. What no
    replay needs any more is deleted from the topic, which else keeps everything. By hand, with
    --webhook, --from and --to, nobody is asked, and nothing deleted. The exit code is 1 when the
    table lacks something.
    """
    with plain_refusals():
        properties = client_properties(bootstrap_servers, client_config)
        by_hand = _by_hand(webhook, start, end)
        if (api is None) == (by_hand is None):
            raise InvalidOption("one of --api and --webhook, --from, --to says what to restore")
        address = service_address(api, api_key_file)
        archive = ArchiveTopic(topic, properties, replication_factor)
        with session_on_demand("restore", master=master) as session:
            if by_hand is not None:
                _one_window(Restore(table, archive, session), by_hand, properties, as_json)
            if address is None:
                return
            with ReplayService(address.url, address.key) as service:
                rounds = Rounds(
                    lambda: restore_all(service, archive, table, session), table, address, as_json
                )
                rounds.once() if once else rounds.for_ever()


def _by_hand(
    webhook: str | None, start: datetime | None, end: datetime | None
) -> tuple[str, int, int] | None:
    if webhook is None and start is None and end is None:
        return None
    if webhook is None or start is None or end is None:
        raise InvalidOption("--webhook, --from and --to go together")
    if end <= start:
        raise InvalidOption(f"--to is {end}; allowed is a time after --from, {start}")
    return webhook, _ms(start), _ms(end)


def _ms(moment: datetime) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() * 1_000)


def _one_window(
    restore: Restore, window: tuple[str, int, int], properties: Mapping[str, str], as_json: bool
) -> None:
    wanted = _located(window, properties)
    if (missing := restore.lacking(wanted)) is not None:
        refuse(f"not restored, for the table lacks some of it: {missing}")
    place = restore.bring(wanted)
    if as_json:
        echo_json(Done("", place).document()["restored"])
    else:
        click.echo(_place(place))


def _located(window: tuple[str, int, int], properties: Mapping[str, str]) -> Wanted:
    """Where the window's records were in the log."""
    webhook, start_ms, end_ms = window
    with translated("the log cannot be asked"), RawCluster(properties) as cluster:
        partitions = len(cluster.topics([DELIVERY_LOG])[DELIVERY_LOG].partitions)
        place = TopicPartition(DELIVERY_LOG, partition_for_key(webhook.encode(), partitions))
        below = cluster.offsets({place: end_ms + LATE_MS})[place]
        if below is None:
            below = cluster.offsets({place: LATEST})[place] or 0
    return Wanted(webhook, start_ms, end_ms, place.partition, below)


@dataclass(frozen=True)
class Rounds:
    """Does what waits, as often as it is asked to, and tells the service how each round went."""

    run: Callable[[], Iterator[Done]]
    table: str
    service: ServiceAddress
    as_json: bool

    def once(self) -> None:
        """Do all that waits; the process ends with 1 if the table lacks some of it."""
        with told("restore", self.table, self.service) as run:
            run.facts = found = _tell(self.run(), self.as_json)
        if missing := found.summary["missing"]:
            refuse(f"{missing} replays wait on, for the table lacks some of their windows")

    def for_ever(self) -> None:
        """Look each minute."""
        while True:
            try:
                with told("restore", self.table, self.service) as run:
                    found = _tell(self.run(), self.as_json)
                    # That nothing waits is what most rounds find.
                    run.facts = found if any(found.summary.values()) else None
            except PipelineError as error:
                # It may be better the next time, and others than those before may wait then.
                click.echo(f"rewind-jobs: {error}", err=True)
            time.sleep(PAUSE_S)


def _tell(found: Iterator[Done], as_json: bool) -> Facts:
    """Print what became of each, as it comes, and count it."""
    restored = records = missing = 0
    for done in found:
        missing += done.missing is not None
        if done.restored is not None:
            restored += 1
            records += done.restored.records
        if as_json:
            echo_json(done.document())
        else:
            click.echo(f"{done.replay_id}: {_in_words(done)}")
    return Facts({"restored": restored, "records": records, "missing": missing})


def _in_words(done: Done) -> str:
    if done.restored is not None:
        return _place(done.restored)
    return "does not wait any more" if done.missing is None else f"missing: {done.missing}"


def _place(place: Restored) -> str:
    return (
        f"{place.records} records restored to partition {place.partition}, offsets {place.start} "
        f"to {place.end}"
    )
