"""`rewind up`: the complete service on one machine, without other servers."""

import os
import signal
from types import FrameType

import click

from app.cli.options import exit_with_error, load_settings, setting_options
from app.variables import PREFIX
from logbroker.lazy_group import imports_without_gc


class _Terminated(BaseException):
    """SIGTERM was received. Unwinds the stack like KeyboardInterrupt."""


def _raise_terminated(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


@click.command()
@setting_options(
    data_dir="Directory of the log and of the SQLite database. Default: .rewind.",
    host="Address of the API.",
    port="Port of the API.",
    broker_port="Port of the embedded broker; further brokers use the ports after it.",
    brokers="Number of embedded brokers; more than one requires --zookeeper.",
    zookeeper="HOST:PORT[/chroot] of ZooKeeper, for a cluster of embedded brokers.",
    database="SQLAlchemy URL of a database. Default: SQLite in the data directory.",
    bootstrap_servers="HOST:PORT of external brokers. Default: an embedded broker.",
    origin="Name of this data centre. Default: local.",
    schema_registry="URL of the Avro schema registry. Without it, events are JSON.",
)
def up(**overrides: str | None) -> None:
    """Run the complete service on this machine.

    It starts broker, API, live path and worker, and stops them on Ctrl-C. Data is kept in the data
    directory. Several brokers, with --brokers, use several cores.
    """
    with imports_without_gc():
        from app.cli.service import LocalService, ServiceStopped
        from app.store import StoreError
        from logbroker.embedded import ChildDidNotStart
        from logbroker.json_log import configure_logging, reason_in

    settings = load_settings(**overrides)
    given = overrides["bootstrap_servers"] or os.environ.get(f"{PREFIX}BOOTSTRAP_SERVERS")
    signal.signal(signal.SIGTERM, _raise_terminated)
    # Audit log lines are JSON, as in the servers.
    configure_logging()
    try:
        with LocalService(settings, settings.bootstrap_servers if given else None) as service:
            click.echo(f"rewind ready on {service.api_url}", err=True)
            service.wait()
    except (KeyboardInterrupt, _Terminated):
        click.echo("rewind stopped", err=True)
    except ChildDidNotStart as error:
        exit_with_error(reason_in(str(error)))
    except (ServiceStopped, StoreError, OSError) as error:
        exit_with_error(str(error))
