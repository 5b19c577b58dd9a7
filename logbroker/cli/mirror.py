"""`logbroker mirror`: copy topics to another cluster until a signal."""

import gc
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from logbroker.cli.client_config import CLIENT_CONFIG, read_client_config
from logbroker.cli.formats import MISUSED, refuse
from logbroker.cli.server_command import (
    AddressParam,
    log_format_option,
    metrics_access_options,
    metrics_address,
    stop_at_end_of_stdin,
    stop_on_signals,
    stop_on_stdin_close_option,
)
from logbroker.errors import ConfigurationError
from logbroker.json_log import configure_logging
from logbroker.listeners import PORT_MAX
from logbroker.mirror.settings import COMPRESSIONS, Cluster, MirrorSettings
from logbroker.option_group import option_group

_METRICS_HOST: Final = "127.0.0.1"

_COLLECTED_AT: Final = 50_000
"""New objects, more than were freed, at which the garbage collector runs.

Thousands of records exist at any time, none of them in a cycle. With Python's 700, scanning them
took 6 % of the time of the thread that copies.
"""


def _environment(name: str, **more: Any) -> dict[str, Any]:
    return {"envvar": f"LOGBROKER_MIRROR_{name}", "show_envvar": True, **more}


@dataclass(frozen=True, slots=True)
class _MirrorOptions:
    """Which topics to copy between which clusters."""

    source: str
    destination: str
    topics: str
    origin: str | None
    group: str | None
    from_config: Path | None
    to_config: Path | None
    compression: str

    def settings(self) -> MirrorSettings:
        """Return the settings of the mirror.

        Raises:
            ConfigurationError: an option is invalid.
        """
        return MirrorSettings(
            _cluster(self.source, "--from-config", self.from_config),
            _cluster(self.destination, "--to-config", self.to_config),
            tuple(dict.fromkeys(map(str.strip, self.topics.split(",")))),
            self.origin,
            self.group,
            self.compression,
        )


_mirror_options = option_group(
    "options",
    _MirrorOptions,
    click.option(
        "--from",
        "source",
        metavar="HOST:PORT,...",
        required=True,
        help="Brokers of the source cluster.",
        **_environment("FROM"),
    ),
    click.option(
        "--to",
        "destination",
        metavar="HOST:PORT,...",
        required=True,
        help="Brokers of the destination cluster.",
        **_environment("TO"),
    ),
    click.option(
        "--topics",
        metavar="NAME|^PATTERN,...",
        required=True,
        help="Topics to copy, which are created if missing. An item that starts with ^ is a "
        "regular expression for whole names, including topics created later.",
        **_environment("TOPICS"),
    ),
    click.option(
        "--origin",
        metavar="NAME",
        help="Data centre of the source: copy only records whose header `origin` has this value, "
        "or that have no such header, which is then added.",
        **_environment("ORIGIN"),
    ),
    click.option(
        "--group",
        metavar="ID",
        help="Consumer group at the source for the position. "
        "Default: logbroker-mirror-CLUSTER with the destination's id.",
        **_environment("GROUP"),
    ),
    click.option(
        "--from-config",
        type=CLIENT_CONFIG,
        help="File of NAME=VALUE lines for the source's clients, with librdkafka's names.",
        **_environment("FROM_CONFIG"),
    ),
    click.option(
        "--to-config",
        type=CLIENT_CONFIG,
        help="File of NAME=VALUE lines for the destination's clients.",
        **_environment("TO_CONFIG"),
    ),
    click.option(
        "--compression",
        type=click.Choice(COMPRESSIONS),
        default=COMPRESSIONS[0],
        show_default=True,
        help="Compression of batches at the destination.",
        **_environment("COMPRESSION"),
    ),
)


@click.command()
@_mirror_options
@click.option(
    "--metrics-port",
    type=click.IntRange(0, PORT_MAX),
    default=0,
    show_default=True,
    help=f"Port for Prometheus metrics, on {_METRICS_HOST}; 0 disables them.",
    **_environment("METRICS_PORT"),
)
@click.option(
    "--metrics-listen",
    type=AddressParam(),
    help="Address for Prometheus metrics, instead of --metrics-port.",
    **_environment("METRICS_LISTEN"),
)
@metrics_access_options("LOGBROKER_MIRROR")
@log_format_option
@stop_on_stdin_close_option
def mirror(
    options: _MirrorOptions,
    metrics_port: int,
    metrics_listen: tuple[str, int] | None,
    metrics_token_file: Path | None,
    metrics_open: bool,
    log_format: str,
    stop_on_stdin_close: bool,
) -> None:
    """Copy topics from one cluster to another until SIGTERM or Ctrl-C.

    Partitions, order, keys, values, headers and times are preserved. The line `logbroker mirror
    ready` on standard error reports that partitions are assigned.
    """
    from logbroker.metrics_http import MetricsAccess
    from logbroker.mirror.metrics import serve_metrics
    from logbroker.mirror.mirror import Mirror

    configure_logging(log_format, root_level=logging.INFO)
    metrics = metrics_address(_METRICS_HOST, metrics_port, metrics_listen)
    try:
        settings = options.settings()
    except ConfigurationError as error:
        refuse(error, MISUSED)
    try:
        running = Mirror(settings, lambda: click.echo("logbroker mirror ready", err=True))
        if metrics is not None:
            access = MetricsAccess(metrics_token_file, metrics_open)
            serve_metrics(running.counts, *metrics, access)
        stop_on_signals(running.stop)
        if stop_on_stdin_close:
            stop_at_end_of_stdin(running.stop)
        gc.set_threshold(_COLLECTED_AT, 10, 10)
        running.run()
    except ConfigurationError as error:
        refuse(error)


def _cluster(servers: str, option: str, config: Path | None) -> Cluster:
    from logbroker.mirror.clients import RULES

    return Cluster(servers, read_client_config(option, config, RULES))
