"""`rewind-jobs restore`: publishes deleted events again for replays of the archive."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import click

from logbroker.option_group import option_group
from spark_jobs.cli.options import (
    JobOptions,
    LogOptions,
    exit_on_errors,
    job_options,
    log_options,
)
from spark_jobs.cli.run_reports import ServiceOptions, api_key_file_option
from spark_jobs.errors import InvalidOption

_TIME: Final = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%Y%m%d%H%M"])


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """A webhook and a window to restore manually."""

    webhook: str | None
    start: datetime | None
    end: datetime | None

    def window(self) -> tuple[str, int, int] | None:
        """The webhook's id and the window `[start, end)` in ms; None if no option is given.

        Raises:
            InvalidOption: an option is missing, or the window is empty.
        """
        if self.webhook is None and self.start is None and self.end is None:
            return None
        if self.webhook is None or self.start is None or self.end is None:
            raise InvalidOption("--webhook, --from and --to are required together")
        if self.end <= self.start:
            raise InvalidOption(f"--to is {self.end}; allowed are times after --from, {self.start}")
        return self.webhook, _ms(self.start), _ms(self.end)


_service_options = option_group(
    "service",
    ServiceOptions,
    click.option(
        "--api",
        metavar="URL",
        help="The replay service, whose waiting replays are restored and which gets the results.",
    ),
    api_key_file_option,
)
_window_options = option_group(
    "manual",
    WindowOptions,
    click.option("--webhook", metavar="ID", help="Manual restore: the webhook."),
    click.option("--from", "start", type=_TIME, help="Manual restore: start of the window, UTC."),
    click.option(
        "--to", "end", type=_TIME, help="Manual restore: end of the window, UTC, exclusive."
    ),
)


@click.command()
@job_options
@log_options
@_service_options
@click.option(
    "--once",
    is_flag=True,
    help="Exit once all waiting replays are processed, instead of checking every minute.",
)
@_window_options
@click.option("--topic", default="delivery_archive", show_default=True, help="Topic to publish to.")
@click.option(
    "--replication-factor",
    type=click.IntRange(-1, 100),
    default=-1,
    show_default=True,
    help="Replication factor of that topic if it is created; -1 is the broker's default.",
)
def restore(
    job: JobOptions,
    log: LogOptions,
    service: ServiceOptions,
    once: bool,
    manual: WindowOptions,
    topic: str,
    replication_factor: int,
) -> None:
    """Publish deleted events again, from the raw table, for replays that wait for them.

    With --api, it lists the waiting replays, reports the offsets of their events, and deletes from
    the topic what no replay needs any more; the topic has no retention of its own. A manual
    restore, with --webhook, --from and --to, neither uses the service nor deletes anything. The
    exit code is 1 if the table lacks events.
    """
    from spark_jobs.cli.restore_loop import RestoreLoop, restore_window
    from spark_jobs.jobs.restore.archive import ArchiveTopic
    from spark_jobs.jobs.restore.job import Restore, restore_all
    from spark_jobs.jobs.restore.service import ReplayService
    from spark_jobs.session import session_on_demand

    with exit_on_errors():
        properties = log.client_properties()
        window = manual.window()
        if (service.api is None) == (window is None):
            raise InvalidOption("either --api, or --webhook with --from and --to, is required")
        address = service.address()
        archive = ArchiveTopic(topic, properties, replication_factor)
        with session_on_demand("restore", master=job.master) as session:
            if window is not None:
                restorer = Restore(job.table, archive, session)
                restore_window(restorer, window, properties, as_json=job.as_json)
            if address is None:
                return
            with ReplayService(address.url, address.key) as replays:
                loop = RestoreLoop(
                    lambda: restore_all(replays, archive, job.table, session),
                    job.table,
                    address,
                    job.as_json,
                )
                loop.run_once() if once else loop.run_forever()


def _ms(moment: datetime) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() * 1_000)
