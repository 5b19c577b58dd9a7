"""The connections of one client: those that nobody uses are taken again."""

from logbroker.client.raw.connection import BrokerConnection
from logbroker.client.raw.settings import Address, RawSettings
from logbroker.client.raw.tls import make_context


class ConnectionPool:
    """Makes connections as the settings say, and closes all that are left at its end.

    No wait on any of them is longer than `wait_s` seconds without a byte.

    Raises:
        ConfigurationError: certificates or keys cannot be read.
    """

    def __init__(self, settings: RawSettings, wait_s: float) -> None:
        self._settings = settings
        self._context = None if settings.tls is None else make_context(settings.tls)
        self.wait_s = wait_s
        self._idle: list[BrokerConnection] = []
        self._taken: set[BrokerConnection] = set()

    def has(self, address: Address) -> bool:
        """Whether a broker is connected already, and nobody else uses the connection."""
        return any(each.address == address for each in self._idle)

    def take(self, address: Address) -> BrokerConnection:
        """A connection to a broker, on which nothing is owed.

        It is the caller's, who gives it back or drops it.

        Raises:
            ConnectionFailed: none could be made.
            NotAuthorized: the broker does not let the user in, or is not trusted.
        """
        connection = next((each for each in self._idle if each.address == address), None)
        if connection is None:
            connection = BrokerConnection(address, self._settings, self._context, self.wait_s)
        else:
            self._idle.remove(connection)
        self._taken.add(connection)
        return connection

    def give_back(self, connection: BrokerConnection) -> None:
        """Leave a connection to the next one who needs it, unless an answer is owed on it."""
        self._taken.discard(connection)
        if connection.is_idle:
            self._idle.append(connection)
        else:
            connection.close()

    def drop(self, connection: BrokerConnection) -> None:
        """Close a connection, and those beside it: what ended it may have ended them."""
        self._taken.discard(connection)
        connection.close()
        for each in [each for each in self._idle if each.address == connection.address]:
            self._idle.remove(each)
            each.close()

    def close(self) -> None:
        """Close all, those that are in use, too."""
        for connection in (*self._idle, *self._taken):
            connection.close()
        self._idle.clear()
        self._taken.clear()
