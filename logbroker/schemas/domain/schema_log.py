"""The interface of a registry to its log."""

from contextlib import AbstractContextManager
from typing import Never, Protocol

from logbroker.schemas.domain.log_records import Decided
from logbroker.schemas.domain.state import RegistryState


class SchemaLog(Protocol):
    """The log, with the state read so far."""

    @property
    def cluster(self) -> str:
        """The id of the log's cluster; empty until a broker has reported it."""

    def reading(self) -> AbstractContextManager[RegistryState]:
        """The state of the registry, unchanged until the block ends; for short look-ups.

        Raises:
            StoreUnavailable: the log was not read to its end yet.
            LogReplaced: the log differs from the one that was read.
        """

    def append(self, decided: Decided) -> bool:
        """Write a change and wait until it is read back; returns whether it counts.

        Raises:
            StoreUnavailable: it was not written.
            StoreTimeout: it may be written or not.
            InvalidSchema: it exceeds the log's limit of a message.
        """

    def catch_up(self) -> None:
        """Wait until the log is read to the end it has now.

        Raises:
            StoreUnavailable: the log is unreachable.
        """


class LogNeeded(Exception):
    """The log must be read or written, which a caller that must not block cannot do."""


class LogAsRead:
    """The state read so far, for callers that must not block: they get LogNeeded."""

    def __init__(self, log: SchemaLog) -> None:
        self._log = log

    @property
    def cluster(self) -> str:
        """The id of the log's cluster; empty until a broker has reported it."""
        return self._log.cluster

    def reading(self) -> AbstractContextManager[RegistryState]:
        """See `SchemaLog`."""
        return self._log.reading()

    def append(self, _decided: Decided) -> Never:
        """Raise LogNeeded."""
        raise LogNeeded

    def catch_up(self) -> Never:
        """Raise LogNeeded."""
        raise LogNeeded
