"""Errors of the clients of logbroker, grouped by what the caller can do.

ClientError ├── ClientClosed        create a new producer or connector ├── StreamsExist        use
the existing streams: a connector creates them once ├── BrokersUnavailable  retry: no broker answers
├── SendFailed          send the listed messages again ├── FetchFailed         request the next
message: the one named in the error is skipped ├── OffsetGone          continue at the log start
offset, and count the missing records ├── UnknownTopic        name an existing topic or partition │
└── TopicReplaced   start over: the offsets belong to a deleted topic └── NotAuthorized       the
operator grants the permission, or corrects the password

Invalid settings raise ConfigurationError; an unreachable ZooKeeper raises RegistryUnavailable.
"""

from collections.abc import Mapping

from logbroker.errors import LogbrokerError


class ClientError(LogbrokerError):
    """Base class of the errors of clients; never raised itself."""


class ClientClosed(ClientError):
    """The producer or the connector was shut down, by its user or by an internal error."""


class StreamsExist(ClientError):
    """The connector has created its streams; its subscription cannot change while registered."""


class BrokersUnavailable(ClientError):
    """No broker answered in time, or none could list the partitions of a topic."""


class SendFailed(ClientError):
    """Some messages of a set were not acknowledged.

    `failures` has the reason for each, by its index in the set. A message that timed out may be
    stored.
    """

    def __init__(self, topic: str, count: int, failures: Mapping[int, str]) -> None:
        self.failures = dict(failures)
        first = min(self.failures)
        super().__init__(
            f"{len(self.failures)} of {count} messages to {topic!r} were not acknowledged;"
            f" message {first}: {self.failures[first]}"
        )


class FetchFailed(ClientError):
    """A partition cannot be read, or its data is corrupt."""


class DamagedFraming(FetchFailed):
    """The batch at `offset` has an unknown format or a wrong length, so its end is unknown."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        super().__init__(message)


class OffsetGone(ClientError):
    """An offset is below the log start offset, or above the log end offset."""

    def __init__(
        self, topic: str, partition: int, offset: int, log_start: int, log_end: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end
        super().__init__(
            f"{topic}-{partition} has no offset {offset}; available: [{log_start}, {log_end})"
        )


class UnknownTopic(ClientError):
    """The topic or the partition does not exist."""


class TopicReplaced(UnknownTopic):
    """A topic was deleted and created again, so older offsets are invalid."""


class ChangeRefused(ClientError):
    """The brokers reject a change; the message names the value and what is allowed."""


class NotAuthorized(ClientError):
    """The brokers reject the user's credentials, or deny the operation."""
