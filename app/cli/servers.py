"""`rewind api`, `rewind live` and `rewind worker`: the service's processes, one per command.

Each command imports only its own server. The others would add a tenth to a worker's memory.
"""

import os
import signal
import socket
import sys
import threading
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from app.cli.options import exit_with_error, load_settings, setting_options
from logbroker.lazy_group import imports_without_gc

if TYPE_CHECKING:
    from app.config import Settings

PROCESSES_MAX: Final = 64

stop_on_stdin_close_option = click.option(
    "--stop-on-stdin-close",
    is_flag=True,
    help="Stop at the end of standard input, which a parent process closes when it ends.",
)


@click.command()
@setting_options(
    database="SQLAlchemy URL of the database.",
    bootstrap_servers="HOST:PORT of brokers, separated by commas.",
    origin="Name of this data centre. Default: local.",
    host="Address to listen on.",
    port="Port to listen on.",
    public_url="URL that browsers use, as https://HOST, if different from the listen address.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    help="Number of processes that share the port. Each of them counts requests for the limits.",
)
@stop_on_stdin_close_option
def api(processes: int, stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Serve the HTTP API and the console.

    The console is at /console. SIGTERM and Ctrl-C stop the process.
    """
    settings = load_settings(**overrides)
    if processes == 1:
        if stop_on_stdin_close:
            _stop_at_end_of(sys.stdin.fileno())
        sys.exit(_serve_api(settings))
    with TemporaryDirectory() as folder:
        # Before the import of the metrics, which the processes then add up in this folder.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        sys.exit(_serve_in_processes(settings, processes, stop_on_stdin_close))


def _serve_in_processes(settings: "Settings", processes: int, stop_on_stdin_close: bool) -> int:
    from app.http.process_group import bind_together, run_processes

    try:
        listeners = bind_together(settings.host, settings.port, processes)
    except OSError as error:
        exit_with_error(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}")

    def serve(listener: socket.socket, parent: int) -> int:
        _stop_at_end_of(parent)
        return _serve_api(settings, listener)

    def started() -> None:
        if stop_on_stdin_close:
            _stop_at_end_of(sys.stdin.fileno())

    return run_processes(serve, listeners, started)


def _serve_api(settings: "Settings", listener: socket.socket | None = None) -> int:
    with imports_without_gc():
        from app.api.application import create_app
        from app.http.server import serve

    if not settings.console:
        return serve(settings, create_app, listener)
    with imports_without_gc():
        from app.console.application import ConsoleSwitch, create_console

    return serve(
        settings,
        lambda services: ConsoleSwitch(create_app(services), create_console(services)),
        listener,
    )


@click.command()
@setting_options(
    database="SQLAlchemy URL of the database.",
    bootstrap_servers="HOST:PORT of brokers, separated by commas.",
    origin="Name of this data centre, whose replays it runs. Default: local.",
    jobs_per_worker="Maximum of concurrent replays.",
    max_in_flight="Maximum of concurrent requests of a replay; 1 preserves order.",
)
@stop_on_stdin_close_option
def worker(stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Run replays.

    SIGTERM and Ctrl-C stop the process. Other workers take over unfinished replays.
    """
    with imports_without_gc():
        from app.replay_workers.server import run

    sys.exit(run(_load(overrides, stop_on_stdin_close)))


@click.command()
@setting_options(
    database="SQLAlchemy URL of the database.",
    bootstrap_servers="HOST:PORT of brokers, separated by commas.",
    origin="Name of this data centre, whose events it delivers. Default: local.",
    schema_registry="URL of the Avro schema registry. Without it, events are JSON.",
    live_delays_s="Seconds before each attempt, separated by commas.",
    live_in_flight="Maximum of concurrent requests per webhook.",
    live_queue_max="Maximum of queued events per webhook; further events are skipped.",
)
@stop_on_stdin_close_option
def live(stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Match events with rules and deliver them.

    Several of these processes share the partitions. SIGTERM and Ctrl-C stop the process.
    """
    with imports_without_gc():
        from app.live.server import run

    sys.exit(run(_load(overrides, stop_on_stdin_close)))


def _load(overrides: dict[str, str | None], stop_on_stdin_close: bool) -> "Settings":
    settings = load_settings(**overrides)
    if stop_on_stdin_close:
        _stop_at_end_of(sys.stdin.fileno())
    return settings


def _stop_at_end_of(descriptor: int) -> None:
    """Send this process SIGTERM at the end of what can be read from `descriptor`."""

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stdin-watch", daemon=True).start()
