"""`rewind api`, `rewind live` and `rewind worker`: the service's processes, one per command.

Each command imports only its own server. The others would add a tenth to a worker's memory.
"""

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

import click

from app.cli.options import load_settings, setting_options
from logbroker.lazy_group import imports_without_gc

if TYPE_CHECKING:
    from app.config import Settings

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
@stop_on_stdin_close_option
def api(stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Serve the HTTP API and the console.

    The console is at /console. SIGTERM and Ctrl-C stop the process.
    """
    with imports_without_gc():
        from app.api.application import create_app
        from app.http.server import serve

    settings = _load(overrides, stop_on_stdin_close)
    if not settings.console:
        sys.exit(serve(settings, create_app))
    with imports_without_gc():
        from app.console.application import ConsoleSwitch, create_console

    sys.exit(
        serve(
            settings, lambda services: ConsoleSwitch(create_app(services), create_console(services))
        )
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
        threading.Thread(target=_stop_at_stdin_end, name="stdin-watch", daemon=True).start()
    return settings


def _stop_at_stdin_end() -> None:
    """Send this process SIGTERM at the end of standard input."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
