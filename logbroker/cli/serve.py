"""`logbroker serve`: run a broker until a signal ends it."""

import logging
import resource
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from logbroker.cli.formats import refuse
from logbroker.cli.server_command import (
    AddressParam,
    log_format_option,
    metrics_address,
    stop_at_end_of_stdin,
    stop_on_signals,
    stop_on_stdin_close_option,
)
from logbroker.config import TOPIC_SETTINGS, BrokerConfig, LogConfig, apply_topic_settings
from logbroker.errors import InvalidConfig, LogbrokerError, StorageFailed
from logbroker.json_log import configure_logging

SWITCH_INTERVAL_S = 0.001
"""How long another thread may keep the interpreter while the loop's thread waits for it. With
Python's own 5 ms one produce in a hundred took 20 ms while metrics of 10,000 partitions were read
without a pause; with this 7 ms, and requests cost the same."""

_NUMBERS = {
    "broker_id": "The broker's id in its cluster; a data directory belongs to one id.",
    "zookeeper_session_timeout_s": "Seconds of silence after which ZooKeeper gives a broker up.",
    "num_partitions": "Partitions of a topic that is created without a number.",
    "partitions_max": "The most partitions this broker takes.",
    "connections_max": "The most connections at once; one more is closed.",
    "request_bytes_max": "The largest request; a larger one closes its connection.",
    "requests_in_flight_max": "Unanswered requests after which a connection is not read.",
    "connection_idle_s": "Seconds after which a silent connection is closed.",
    "retention_check_s": "Seconds between two looks for segments to delete.",
    "file_delete_delay_s": "Seconds before deleted segments leave the disk.",
    "producer_id_expiration_s": "Seconds after which an idempotent producer is forgotten.",
    "flush_threads": "How many logs may be flushed at the same time.",
    "group_initial_rebalance_delay_ms": "How long an empty group waits for more first members.",
    "group_min_session_timeout_ms": "The shortest session timeout of a group's member.",
    "group_max_session_timeout_ms": "The longest session timeout of a group's member.",
    "group_max_size": "The most members of a group.",
    "metrics_port": "Where to serve Prometheus metrics, on the host of --listen; 0 is nowhere.",
    "metrics_partitions_max": "Metrics tell partitions apart up to so many.",
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
@click.option(
    "--listen",
    type=AddressParam(),
    default="127.0.0.1:9092",
    envvar="LOGBROKER_LISTEN",
    show_default=True,
    show_envvar=True,
    help="Where to listen; port 0 lets the system choose.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="LOGBROKER_DATA_DIR",
    show_envvar=True,
    help="The folder that holds the log.",
)
@click.option(
    "--advertised-host",
    envvar="LOGBROKER_ADVERTISED_HOST",
    show_envvar=True,
    help="The name clients reach this broker by; the listening host where absent.",
)
@click.option(
    "--advertised-port",
    type=int,
    envvar="LOGBROKER_ADVERTISED_PORT",
    show_envvar=True,
    help="The port clients reach this broker at; the listening port where absent.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[,HOST:PORT][/PATH]",
    envvar="LOGBROKER_ZOOKEEPER",
    show_envvar=True,
    help="The ensemble that keeps the cluster; without one the broker is alone.",
)
@click.option(
    "--metrics-listen",
    type=AddressParam(),
    envvar="LOGBROKER_METRICS_LISTEN",
    show_envvar=True,
    help="Where to serve Prometheus metrics, if not on the host of --listen.",
)
@click.option(
    "--auto-create-topics/--no-auto-create-topics",
    default=True,
    envvar="LOGBROKER_AUTO_CREATE_TOPICS",
    show_default=True,
    show_envvar=True,
    help="Whether asking for a topic creates it.",
)
@click.option(
    "--topic-config",
    "topic_configs",
    multiple=True,
    metavar="NAME=VALUE",
    help=f"Default of a topic setting; repeatable. Known: {', '.join(TOPIC_SETTINGS)}.",
)
@log_format_option
@stop_on_stdin_close_option
@_number_options
def serve(
    listen: tuple[str, int],
    metrics_listen: tuple[str, int] | None,
    topic_configs: tuple[str, ...],
    log_format: str,
    stop_on_stdin_close: bool,
    **settings: Any,
) -> None:
    """Serve the Kafka protocol from a data directory until SIGTERM or Ctrl-C.

    The line `logbroker ready on HOST:PORT` on standard error says that it serves.
    """
    from logbroker.server.broker import Broker

    configure_logging(log_format, root_level=logging.INFO)
    host, port = listen
    metrics = metrics_address(host, settings["metrics_port"], metrics_listen)
    _raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        defaults = _topic_defaults(topic_configs)
        config = BrokerConfig(host=host, port=port, topic_defaults=defaults, **settings)
        broker = Broker(config)
        if metrics is not None:
            broker.serve_metrics(*metrics)
    except LogbrokerError as error:
        refuse(error)
    stop_on_signals(broker.stop)
    if stop_on_stdin_close:
        stop_at_end_of_stdin(broker.stop)
    click.echo(f"logbroker ready on {host}:{broker.port}", err=True)
    try:
        broker.run()
    except StorageFailed as error:
        refuse(f"not closed cleanly: {error}")


def _topic_defaults(pairs: tuple[str, ...]) -> LogConfig:
    settings: dict[str, str] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise InvalidConfig(f"topic config is {pair!r}; allowed is NAME=VALUE")
        settings[name] = value
    return apply_topic_settings(LogConfig(), settings)


def _raise_descriptor_limit() -> None:
    """Take all descriptors that the system grants: a partition needs up to three."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
