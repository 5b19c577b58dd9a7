"""What the paper's clients raise, grouped by what their user can do.

ClientError
├── ClientClosed        make a new producer or connector
├── StreamsExist        keep the streams that are there: a connector makes them once
├── BrokersUnavailable  try again: no broker answers
├── SendFailed          send the messages that it names again
├── FetchFailed         ask the stream for its next message: what the error names is left out
├── OffsetGone          read from where the partition begins now, and count what is missing
├── UnknownTopic        name a topic, or a partition, that is there
│   └── TopicReplaced   begin again: the offsets are of a topic that was deleted
└── NotAuthorized       the operator gives the user rights, or the right password

Besides these: ConfigurationError for settings that cannot be, and RegistryUnavailable where
ZooKeeper does not answer.
"""

from collections.abc import Mapping

from logbroker.errors import LogbrokerError


class ClientError(LogbrokerError):
    """The root: nothing raises it as such."""


class ClientClosed(ClientError):
    """The producer or the connector was shut down, by its user or by an error in it."""


class StreamsExist(ClientError):
    """The connector has made its streams; what a consumer reads is fixed while it is registered."""


class BrokersUnavailable(ClientError):
    """No broker answered in time, or those that did cannot tell the partitions of a topic."""


class SendFailed(ClientError):
    """Some messages of a set were not acknowledged.

    `failures` has the reason of each, by its place in the set. One that timed out may be in the
    log all the same.
    """

    def __init__(self, topic: str, count: int, failures: Mapping[int, str]) -> None:
        self.failures = dict(failures)
        first = min(self.failures)
        super().__init__(
            f"{len(self.failures)} of {count} messages to {topic!r} were not acknowledged;"
            f" message {first}: {self.failures[first]}"
        )


class FetchFailed(ClientError):
    """A partition cannot be read, or what came of it is damaged."""


class OffsetGone(ClientError):
    """An offset lies before a partition's beginning, or behind its end; both are told with it."""

    def __init__(
        self, topic: str, partition: int, offset: int, log_start: int, log_end: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end
        super().__init__(
            f"{topic}-{partition} has no offset {offset}: it holds [{log_start}, {log_end})"
        )


class UnknownTopic(ClientError):
    """There is no topic of this name, or it has no partition of this number."""


class TopicReplaced(UnknownTopic):
    """A topic was deleted and made anew, so offsets of the former one mean nothing in it."""


class NotAuthorized(ClientError):
    """The brokers know nobody of this name and password, or let them not do what is asked."""
