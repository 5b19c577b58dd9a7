"""The complete service on one machine: brokers, API, live path and worker as child processes."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from app.cli.operator_key import ensure_operator_key
from app.config import Settings
from app.store import migrate
from app.store.secret_keys import load_secret_keys
from app.store.stored_secrets import encrypt_text_secrets
from app.variables import PREFIX, kafka_variable
from logbroker.embedded import ChildProcess, EmbeddedBroker, inherited_environment

BROKER_DEFAULTS: Final = {
    "LOGBROKER_LOG_FORMAT": "json",
    # Groups have one member here; waiting for others would delay each start by three seconds.
    "LOGBROKER_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    # Never: the live path would treat its groups as new after a longer stop, and lose positions.
    "LOGBROKER_OFFSETS_RETENTION_MINUTES": str(2**31 - 1),
}
"""Defaults of embedded brokers. The environment overrides them."""


class ServiceStopped(Exception):
    """A process ended by itself. The message has its name and exit code."""


class LocalService:
    """Starts the processes one after the other, and stops them in reverse order.

    With `bootstrap_servers`, it starts no broker. `hear` gets each line of the processes' standard
    error. A context manager; on exit all processes have ended.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap_servers: str | None = None,
        hear: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self._settings = settings
        self._hear = hear
        self._bootstrap_servers = bootstrap_servers
        self._children: dict[str, ChildProcess] = {}
        self.api_url = ""
        self.operator_key = ""

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            ChildDidNotStart: a process failed to start, for the reason in the message.
            StoreError: the database does not answer or cannot be upgraded.
        """
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the worker, which releases its jobs; then live path, API and brokers."""
        try:
            for child in reversed(self._children.values()):
                child.stop()
        finally:
            # After a second Ctrl-C, too, no child may survive.
            for child in self._children.values():
                child.kill()

    def wait(self) -> None:
        """Wait until a process ends by itself, which is an error.

        Raises:
            ServiceStopped: always.
        """
        while True:
            for name, child in self._children.items():
                if child.exit_code is not None:
                    raise ServiceStopped(f"{name} exited with code {child.exit_code}")
            # Returns when a child has ended, whose exit code is left for the loop above.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

    def _start(self) -> None:
        settings = self._settings
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        migrate(settings.database)
        # With SQLite, the first start creates the key file.
        load_secret_keys(settings)
        encrypt_text_secrets(settings)
        self.operator_key = ensure_operator_key(settings)
        bootstrap = self._bootstrap_servers or self._start_brokers()
        environment = self._environment(bootstrap, "api_key")
        api = ChildProcess(["-m", "app", "api"], "rewind api ready on ", environment, self._hear)
        self._children["rewind api"] = api
        self.api_url = api.start()
        live = ChildProcess(["-m", "app", "live"], "rewind live ready", environment, self._hear)
        self._children["rewind live"] = live
        live.start()
        environment = self._environment(bootstrap, "api_key", "schema_registry")
        worker = ChildProcess(
            ["-m", "app", "worker"], "rewind worker ready", environment, self._hear
        )
        self._children["rewind worker"] = worker
        worker.start()

    def _start_brokers(self) -> str:
        """Start the brokers. Returns their addresses, separated by commas."""
        settings = self._settings
        if not settings.zookeeper:
            return self._start_broker("logbroker serve", settings.data_dir / "log", 0)
        return ",".join(
            self._start_broker(
                f"logbroker serve --broker-id {broker_id}",
                settings.data_dir / f"log-{broker_id}",
                broker_id,
                ("--broker-id", str(broker_id), "--zookeeper", settings.zookeeper),
            )
            for broker_id in range(settings.brokers)
        )

    def _start_broker(
        self, name: str, data_dir: Path, index: int, options: Sequence[str] = ()
    ) -> str:
        """Start the broker of an index, and wait until it is ready. Returns its address."""
        first_port = self._settings.broker_port
        port = first_port + index if first_port else 0
        environment = BROKER_DEFAULTS | inherited_environment(os.environ, "LOGBROKER_")
        broker = EmbeddedBroker(
            data_dir, port, options=options, environment=environment, write_line=self._hear
        )
        self._children[name] = broker
        return broker.start()

    def _environment(self, bootstrap_servers: str, *unneeded: str) -> dict[str, str]:
        """Return a child's environment with its settings. Arguments would be visible in `ps`.

        Children send no requests to the API, and only API and live path read the schema registry.
        """
        given = self._settings.model_dump() | {"bootstrap_servers": bootstrap_servers}
        properties = given.pop("kafka_properties")
        for name in unneeded:
            del given[name]
        return (
            inherited_environment(os.environ)
            | {f"{PREFIX}{name.upper()}": str(value) for name, value in given.items()}
            | {kafka_variable(name): value for name, value in properties.items()}
        )
