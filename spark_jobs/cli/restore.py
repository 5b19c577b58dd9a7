"""`rewind-jobs restore`: events that the log has deleted, back for replays of the archive."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from spark_jobs.cli.options import (
    bootstrap_servers_option,
    client_config_option,
    client_properties,
    json_option,
    master_option,
    plain_refusals,
    table_option,
)
from spark_jobs.cli.run_reports import api_key_file_option, service_address
from spark_jobs.errors import InvalidOption

_TIME: Final = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%Y%m%d%H%M"])


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
    from spark_jobs.cli.restore_loop import Rounds, restore_window
    from spark_jobs.jobs.restore.archive import ArchiveTopic
    from spark_jobs.jobs.restore.job import Restore, restore_all
    from spark_jobs.jobs.restore.service import ReplayService
    from spark_jobs.session import session_on_demand

    with plain_refusals():
        properties = client_properties(bootstrap_servers, client_config)
        by_hand = _by_hand(webhook, start, end)
        if (api is None) == (by_hand is None):
            raise InvalidOption("one of --api and --webhook, --from, --to says what to restore")
        address = service_address(api, api_key_file)
        archive = ArchiveTopic(topic, properties, replication_factor)
        with session_on_demand("restore", master=master) as session:
            if by_hand is not None:
                restore_window(Restore(table, archive, session), by_hand, properties, as_json)
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
