"""`rewind up`: the whole service on one machine, with nothing to install beside it."""

import os
import signal
from types import FrameType

import click

from app.cli.options import load_settings, refuse, setting_options
from app.variables import PREFIX
from logbroker.lazy_group import imports_without_gc


class _Stopped(BaseException):
    """SIGTERM came: unwind to the end of the service's `with`, as Ctrl-C does."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped


@click.command()
@setting_options(
    data_dir="Folder of the log and of the SQLite database; .rewind where absent.",
    host="Address of the API.",
    port="Port of the API.",
    broker_port="Port of the embedded broker; more of them take the ports behind it.",
    brokers="How many embedded brokers; more than one need --zookeeper.",
    zookeeper="HOST:PORT[/chroot] of the ZooKeeper through which embedded brokers form a cluster.",
    database="SQLAlchemy URL of a database to use instead of SQLite.",
    bootstrap_servers="HOST:PORT of brokers to use instead of the embedded one.",
    origin="Name of the data centre that it runs in; local where absent.",
    schema_registry="Address of the registry of Avro schemas; without it, events are JSON.",
)
def up(**overrides: str | None) -> None:
    """Run brokers, API, live path and worker until Ctrl-C; the data stays in the data directory.

    One broker needs nothing beside it. Several, with --brokers, use several cores.
    """
    from logging.config import dictConfig

    with imports_without_gc():
        from app.cli.service import LocalService, ServiceStopped
        from app.json_log import CONFIG, said_in
        from app.store import StoreError
        from logbroker.embedded import ChildDidNotStart

    settings = load_settings(**overrides)
    given = overrides["bootstrap_servers"] or os.environ.get(f"{PREFIX}BOOTSTRAP_SERVERS")
    signal.signal(signal.SIGTERM, _stop)
    # The database holds the webhooks' secrets and the log their events, whatever the folder's mode.
    os.umask(0o077)
    # The audit's lines are JSON, as those of the servers are.
    dictConfig(CONFIG)
    try:
        with LocalService(settings, settings.bootstrap_servers if given else None) as service:
            click.echo(f"rewind ready on {service.api_url}", err=True)
            service.wait()
    except (KeyboardInterrupt, _Stopped):
        click.echo("rewind stopped", err=True)
    except ChildDidNotStart as error:
        refuse(said_in(str(error)))
    except (ServiceStopped, StoreError, OSError) as error:
        refuse(str(error))
