"""What a registry needs of its log."""

from contextlib import AbstractContextManager
from typing import Never, Protocol

from logbroker.schemas.log_records import Decided
from logbroker.schemas.state import RegistryState


class SchemaLog(Protocol):
    """The log, and what it says so far."""

    @property
    def cluster(self) -> str:
        """The id of the cluster that the log is at; empty as long as no broker has told it."""

    def reading(self) -> AbstractContextManager[RegistryState]:
        """What the log says, unchanged until the block ends; for look-ups, which are short.

        Raises:
            StoreUnavailable: the log was not read to its end yet.
            LogReplaced: it is not the log that was read before.
        """

    def append(self, decided: Decided) -> bool:
        """Write a change, and wait until it was read back; whether it counts.

        Raises:
            StoreUnavailable: it was not written.
            StoreTimeout: it was written or not.
            InvalidSchema: it is larger than the log takes.
        """

    def catch_up(self) -> None:
        """Wait until everything was read that the log had when this was called.

        Raises:
            StoreUnavailable: the log does not answer.
        """


class LogNeeded(Exception):
    """What was read so far does not tell: the log has to be asked, or written."""


class LogAsRead:
    """What a log says so far, for those who must not wait for it: they get LogNeeded."""

    def __init__(self, log: SchemaLog) -> None:
        self._log = log

    @property
    def cluster(self) -> str:
        """The id of the log's cluster; empty as long as no broker has told it."""
        return self._log.cluster

    def reading(self) -> AbstractContextManager[RegistryState]:
        """See `SchemaLog`."""
        return self._log.reading()

    def append(self, _decided: Decided) -> Never:
        """Raises LogNeeded."""
        raise LogNeeded

    def catch_up(self) -> Never:
        """Raises LogNeeded."""
        raise LogNeeded
