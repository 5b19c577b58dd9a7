"""`logbroker serve`: run a broker until a signal."""

import logging
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from logbroker.cli.formats import refuse
from logbroker.cli.listener_options import listener_options, take_listener_settings, tls_options
from logbroker.cli.server_command import (
    AddressParam,
    log_format_option,
    metrics_access_options,
    metrics_address,
    stop_at_end_of_stdin,
    stop_on_signals,
    stop_on_stdin_close_option,
    zookeeper_config_option,
)
from logbroker.config import BrokerConfig, LogConfig
from logbroker.errors import InvalidConfig, LogbrokerError, StorageFailed
from logbroker.json_log import configure_logging
from logbroker.topic_settings import TOPIC_SETTINGS, apply_topic_settings

SWITCH_INTERVAL_S = 0.001
"""How long another thread may hold the interpreter while the event loop waits for it.

With Python's default of 5 ms, 1 % of the Produce requests took 20 ms during a continuous read of
the metrics of 10,000 partitions. With this value they took 7 ms, and requests cost the same.
"""

_NUMBERS = {
    "broker_id": "Id of the broker in its cluster; a data directory belongs to one id.",
    "zookeeper_session_timeout_s": "Seconds without a heartbeat until ZooKeeper removes a broker.",
    "num_partitions": "Partitions of a topic that is created without a number.",
    "partitions_max": "Maximum number of partitions of this broker.",
    "connections_max": "Maximum number of connections; further ones are closed.",
    "connections_per_ip_max": "Maximum number of connections from one IP address.",
    "request_bytes_max": "Maximum size of a request; a larger one closes its connection.",
    "request_memory_bytes_max": "Memory of all requests that are being received.",
    "requests_in_flight_max": "Unanswered requests at which a connection is no longer read.",
    "connection_idle_s": "Seconds after which an idle connection is closed.",
    "retention_check_s": "Seconds between two retention checks.",
    "file_delete_delay_s": "Seconds until the files of deleted segments are removed.",
    "log_retry_s": "Seconds between two attempts to open logs that could not be opened.",
    "producer_id_expiration_s": "Seconds until the state of an idle idempotent producer expires.",
    "flush_threads": "Number of logs that may be flushed at the same time.",
    "cleaner_backoff_s": "Seconds between two searches for logs to compact.",
    "cleaner_dedupe_buffer_bytes": "Memory for keys during a compaction.",
    "group_initial_rebalance_delay_ms": "How long an empty group waits for further members.",
    "group_min_session_timeout_ms": "Minimum session timeout of a group member.",
    "group_max_session_timeout_ms": "Maximum session timeout of a group member.",
    "group_max_size": "Maximum number of members of a group.",
    "offsets_retention_minutes": "Minutes until unused committed offsets expire.",
    "connections_max_reauth_ms": "Life of a SASL session; 0 means without limit.",
    "connection_failed_authentication_delay_ms": "Delay of the answer to a failed authentication.",
    "metrics_port": "Port for Prometheus metrics, on the host of --listen; 0 disables them.",
    "metrics_partitions_max": "Maximum number of partitions with metrics of their own.",
}


def _number_options(command: Callable[..., None]) -> Callable[..., None]:
    defaults = {field.name: field.default for field in fields(BrokerConfig)}
    for name, text in reversed(_NUMBERS.items()):
        command = click.option(
            f"--{name.replace('_', '-')}",
            name,
            type=type(defaults[name]),
            default=defaults[name],
            envvar=f"LOGBROKER_{name.upper()}",
            show_default=True,
            show_envvar=True,
            help=text,
        )(command)
    return command


@click.command()
@listener_options
@tls_options
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="LOGBROKER_DATA_DIR",
    show_envvar=True,
    help="Directory of the log.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,HOST:PORT][/PATH]",
    envvar="LOGBROKER_ZOOKEEPER",
    show_envvar=True,
    help="ZooKeeper ensemble of the cluster. Default: a single broker without one.",
)
@zookeeper_config_option
@click.option(
    "--metrics-listen",
    type=AddressParam(),
    envvar="LOGBROKER_METRICS_LISTEN",
    show_envvar=True,
    help="Address for Prometheus metrics, instead of --metrics-port.",
)
@click.option(
    "--auto-create-topics/--no-auto-create-topics",
    default=False,
    envvar="LOGBROKER_AUTO_CREATE_TOPICS",
    show_default=True,
    show_envvar=True,
    help="Create unknown topics that clients request.",
)
@click.option(
    "--authorizer/--no-authorizer",
    default=False,
    envvar="LOGBROKER_AUTHORIZER",
    show_default=True,
    show_envvar=True,
    help="Let access control lists decide what clients may do; see `logbroker acls`.",
)
@click.option(
    "--super-users",
    metavar="User:NAME;...",
    default="",
    envvar="LOGBROKER_SUPER_USERS",
    show_envvar=True,
    help="Principals that may do everything while the authorizer is on.",
)
@click.option(
    "--allow-everyone-if-no-acl-found/--deny-everyone-if-no-acl-found",
    default=False,
    envvar="LOGBROKER_ALLOW_EVERYONE_IF_NO_ACL_FOUND",
    show_default=True,
    show_envvar=True,
    help="Who may use a resource for which there is no access control list.",
)
@click.option(
    "--topic-config",
    "topic_configs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Default of a topic setting; repeatable. Settings: {', '.join(TOPIC_SETTINGS)}.",
)
@metrics_access_options("LOGBROKER")
@log_format_option
@stop_on_stdin_close_option
@_number_options
def serve(
    metrics_listen: tuple[str, int] | None,
    metrics_token_file: Path | None,
    metrics_open: bool,
    topic_configs: tuple[str, ...],
    log_format: str,
    stop_on_stdin_close: bool,
    **settings: Any,
) -> None:
    """Serve the Kafka protocol from a data directory until SIGTERM or Ctrl-C.

    The line `logbroker ready on HOST:PORT` on standard error reports that the broker serves.
    """
    from logbroker.server.broker import Broker

    configure_logging(log_format, root_level=logging.INFO)
    _raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        settings |= take_listener_settings(settings)
        metrics = metrics_address(settings["host"], settings["metrics_port"], metrics_listen)
        config = BrokerConfig(topic_defaults=_topic_defaults(topic_configs), **settings)
        broker = Broker(config)
        if metrics is not None:
            from logbroker.metrics_http import MetricsAccess

            broker.serve_metrics(*metrics, MetricsAccess(metrics_token_file, metrics_open))
    except LogbrokerError as error:
        refuse(error)
    broker.collect_rarely()
    stop_on_signals(broker.stop)
    signal.signal(signal.SIGHUP, lambda *_: broker.reload_certificates())
    if stop_on_stdin_close:
        stop_at_end_of_stdin(broker.stop)
    click.echo(f"logbroker ready on {config.host}:{broker.port}", err=True)
    try:
        broker.run()
    except StorageFailed as error:
        refuse(f"the broker was not closed cleanly: {error}")


def _topic_defaults(pairs: tuple[str, ...]) -> LogConfig:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidConfig(f"invalid topic setting {pair!r}; expected NAME=VALUE")
        if name == "file.delete.delay.ms":
            raise InvalidConfig(f"the default of {name} is the option --file-delete-delay-s")
        settings[name] = value
    return apply_topic_settings(LogConfig(), settings)


def _raise_descriptor_limit() -> None:
    """Raise the limit of file descriptors: a partition needs up to three."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
