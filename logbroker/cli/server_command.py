"""Shared parts of commands that run until a signal: options, addresses and signal handlers."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from logbroker.json_log import FORMATS

log_format_option = click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    envvar="LOGBROKER_LOG_FORMAT",
    show_default=True,
    show_envvar=True,
    help="Format of the log on standard error: text, or one JSON object per line.",
)
stop_on_stdin_close_option = click.option(
    "--stop-on-stdin-close",
    is_flag=True,
    help="Stop when standard input ends, as it does when the parent process dies.",
)


Command = Callable[..., Any]


class AddressParam(click.ParamType[tuple[str, int]]):
    """HOST:PORT, or [HOST]:PORT for an IPv6 address."""

    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return the host and the port number."""
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            self.fail(f"invalid address {value!r}; expected HOST:PORT", param, ctx)
        return host.strip("[]"), int(port)


def metrics_address(
    host: str, port: int, elsewhere: tuple[str, int] | None
) -> tuple[str, int] | None:
    """Return the address for metrics; None if they are disabled."""
    if port and elsewhere is not None:
        raise click.UsageError("--metrics-port and --metrics-listen are mutually exclusive")
    return elsewhere or ((host, port) if port else None)


def metrics_access_options(prefix: str) -> Callable[[Command], Command]:
    """A decorator that adds the options of `MetricsAccess`; their variables begin with `prefix`."""

    def decorate(command: Command) -> Command:
        for option in (
            click.option(
                "--metrics-open",
                is_flag=True,
                envvar=f"{prefix}_METRICS_OPEN",
                show_envvar=True,
                help="Serve metrics to other machines without a token.",
            ),
            click.option(
                "--metrics-token-file",
                type=click.Path(path_type=Path, exists=True, dir_okay=False),
                envvar=f"{prefix}_METRICS_TOKEN_FILE",
                show_envvar=True,
                help="File with the bearer token with which other machines read metrics. This "
                "machine needs none.",
            ),
        ):
            command = option(command)
        return command

    return decorate


zookeeper_config_option = click.option(
    "--zookeeper-config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    envvar="LOGBROKER_ZOOKEEPER_CONFIG",
    show_envvar=True,
    help="File of NAME=VALUE lines with the authentication and TLS of ZooKeeper's clients.",
)


def stop_on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` on SIGTERM and Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def stop_at_end_of_stdin(stop: Callable[[], object]) -> None:
    """Call `stop` on a new thread once standard input ends; returns at once."""
    threading.Thread(target=_wait_and_stop, args=(stop,), name="stdin-watch", daemon=True).start()


def _wait_and_stop(stop: Callable[[], object]) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stop()
