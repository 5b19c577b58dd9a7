"""A broker on a thread of the test process, for tests that need no process of its own."""

import threading
from pathlib import Path
from typing import Any, Self

from logbroker.config import BrokerConfig
from logbroker.listeners import parse_listeners
from logbroker.server.broker import Broker
from logbroker.server.connection import Connection


class BrokerThread:
    """A running broker with listeners on free ports of 127.0.0.1. A context manager."""

    def __init__(
        self, data_dir: Path, listeners: str, *, protocols: str | None = None, **settings: Any
    ) -> None:
        """Start a broker with listeners of these names, such as `PLAINTEXT,SSL`."""
        text = ",".join(f"{name}://127.0.0.1:0" for name in listeners.split(","))
        config = BrokerConfig(
            data_dir,
            listeners=parse_listeners(text, protocols),
            group_initial_rebalance_delay_ms=0,
            **settings,
        )
        self.broker = Broker(config)
        self._thread = threading.Thread(target=self.broker.run, name="broker", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self._thread.join()

    def bootstrap(self, listener: str) -> str:
        """Return the address of a listener."""
        (address,) = [each for each in self.broker._listener.addresses if each.name == listener]
        return f"127.0.0.1:{address.port}"

    def connections(self, listener: str) -> list[Connection]:
        """Return the open connections of a listener."""
        return [each for each in list(self.broker._listener) if each.listener == listener]

    def principals(self, listener: str) -> set[str]:
        """Return whom the open connections of a listener belong to."""
        return {str(each.principal) for each in self.connections(listener)}

    @property
    def authentication_failures(self) -> int:
        return self.broker._counters.authentication_failures
