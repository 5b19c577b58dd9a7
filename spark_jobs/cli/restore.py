"""`rewind-jobs restore`: events that the log has deleted, back for replays of the archive."""

import time
from collections.abc import Callable, Iterator, Mapping
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
from spark_jobs.errors import InvalidOption, PipelineError
from spark_jobs.jobs.restore.archive import ArchiveTopic
from spark_jobs.jobs.restore.job import DELIVERY_LOG, Done, Restore, Restored, Wanted, restore_all
from spark_jobs.jobs.restore.service import ReplayService
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
@click.option("--api", metavar="URL", help="The replay service, which says what is to be restored.")
@click.option(
    "--api-key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with an operator's key.",
)
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
    """Publish events that the log has deleted anew, out of the raw table, for replays of them.

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
        archive = ArchiveTopic(topic, properties, replication_factor)
        with session_on_demand("restore", master=master) as session:
            if by_hand is not None:
                _one_window(Restore(table, archive, session), by_hand, properties, as_json)
                return
            key = "" if api_key_file is None else api_key_file.read_text("utf-8", "replace").strip()
            with ReplayService(api or "", key) as service:
                _serve(lambda: restore_all(service, archive, table, session), once, as_json)


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
        click.echo(_told(place))


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


def _serve(run: Callable[[], Iterator[Done]], once: bool, as_json: bool) -> None:
    if once:
        lacking = _tell(run(), as_json)
        if lacking:
            refuse(f"{lacking} replays wait on, for the table lacks some of their windows")
        return
    while True:
        try:
            _tell(run(), as_json)
        except PipelineError as error:
            # It may be better the next time, and others than those before may wait then.
            click.echo(f"rewind-jobs: {error}", err=True)
        time.sleep(PAUSE_S)


def _tell(found: Iterator[Done], as_json: bool) -> int:
    """Print what became of each, as it comes; how many were not restored."""
    lacking = 0
    for done in found:
        lacking += done.missing is not None
        if as_json:
            echo_json(done.document())
        elif done.restored is not None:
            click.echo(f"{done.replay_id}: {_told(done.restored)}")
        elif done.missing is not None:
            click.echo(f"{done.replay_id}: missing: {done.missing}")
        else:
            click.echo(f"{done.replay_id}: does not wait any more")
    return lacking


def _told(place: Restored) -> str:
    return (
        f"{place.records} records restored to partition {place.partition}, offsets {place.start} "
        f"to {place.end}"
    )
