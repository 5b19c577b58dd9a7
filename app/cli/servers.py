"""`rewind api`, `rewind live` and `rewind worker`: each a process, for more than one machine.

Each loads its own server when it is run, and not those of the others, which would take a tenth of
the memory that a worker may have.
"""

import os
import signal
import sys
import threading

import click

from app.cli.options import load_settings, setting_options
from logbroker.lazy_group import imports_without_gc

stop_on_stdin_close_option = click.option(
    "--stop-on-stdin-close",
    is_flag=True,
    help="Stop when standard input ends, as it does when the parent process dies.",
)


@click.command()
@setting_options(
    database="SQLAlchemy URL of the database.",
    bootstrap_servers="HOST:PORT of one or more brokers, with commas between.",
    origin="Name of the data centre that it runs in; local where absent.",
    host="Address to listen on.",
    port="Port to listen on.",
    public_url="Where browsers reach it, as https://HOST, when that is not where it listens.",
)
@stop_on_stdin_close_option
def api(stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Serve the HTTP API, and the operators' console at /console, until SIGTERM or Ctrl-C."""
    with imports_without_gc():
        from app.api.server import serve

    settings = load_settings(**overrides)
    if stop_on_stdin_close:
        stop_when_stdin_closes()
    if not settings.console:
        sys.exit(serve(settings))
    with imports_without_gc():
        from app.console.application import with_console

    sys.exit(serve(settings, with_console))


@click.command()
@setting_options(
    database="SQLAlchemy URL of the database.",
    bootstrap_servers="HOST:PORT of one or more brokers, with commas between.",
    origin="Name of the data centre that it runs in, whose replays it runs; local where absent.",
    jobs_per_worker="Replays that run at the same time.",
    max_in_flight="Requests to one webhook at a time; 1 keeps the order.",
)
@stop_on_stdin_close_option
def worker(stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Run replays until SIGTERM or Ctrl-C; other workers take over unfinished ones."""
    with imports_without_gc():
        from app.replay_workers.server import run

    settings = load_settings(**overrides)
    if stop_on_stdin_close:
        stop_when_stdin_closes()
    sys.exit(run(settings))


@click.command()
@setting_options(
    database="SQLAlchemy URL of the database.",
    bootstrap_servers="HOST:PORT of one or more brokers, with commas between.",
    origin="Name of the data centre that it runs in, whose events it delivers; local where absent.",
    schema_registry="Address of the registry of Avro schemas; without it, events are JSON.",
    live_delays_s="Seconds before each attempt, with commas between.",
    live_in_flight="Requests to one webhook at a time.",
    live_queue_max="Events that wait for one webhook; more are left to replays.",
)
@stop_on_stdin_close_option
def live(stop_on_stdin_close: bool, **overrides: str | None) -> None:
    """Match events against the rules and deliver them, until SIGTERM or Ctrl-C.

    Any number of these processes share the work.
    """
    with imports_without_gc():
        from app.live.server import run

    settings = load_settings(**overrides)
    if stop_on_stdin_close:
        stop_when_stdin_closes()
    sys.exit(run(settings))


def stop_when_stdin_closes() -> None:
    """Send this process SIGTERM, once, when standard input ends; returns at once."""
    threading.Thread(target=_wait_and_stop, name="stdin-watch", daemon=True).start()


def _wait_and_stop() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
