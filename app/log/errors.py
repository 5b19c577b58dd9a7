"""The errors of the log, grouped by what the caller can do.

LogError
├── LogUnavailable      retry: the log does not answer, or a topic does not exist yet
│   └── TopicMissing        the log answers, and the topic does not exist
├── EstimatesBusy       retry in a few seconds
├── InspectionsBusy     retry in a few seconds
├── NotInLog            use an existing topic or group
├── BrowseRefused       correct the query
├── PublishFailed       publish the named events again
├── WindowNotRetained   request a later window
└── HistoryLost         nothing: records of a replay were deleted from the log
"""


class LogError(Exception):
    """The base class; not raised itself."""


class LogUnavailable(LogError):
    """The log does not answer, or answers with an unexpected error."""


class TopicMissing(LogUnavailable):
    """The topic does not exist."""


class EstimatesBusy(LogError):
    """The limit of concurrent estimates is reached."""


class InspectionsBusy(LogError):
    """The limit of concurrent inspections is reached."""


class NotInLog(LogError):
    """The topic or the consumer group does not exist."""


class BrowseRefused(LogError):
    """The query for a page of messages is invalid: `field` has `value`; `allowed` is allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"invalid {field}: {value!r}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class PublishFailed(LogError):
    """Some events were not acknowledged; whether the log has them is unknown.

    `event_ids` are their ids, in the order of publishing.
    """

    def __init__(self, event_ids: tuple[str, ...], of: int, reason: str) -> None:
        shown = ", ".join(event_ids[:5]) + (", ..." if len(event_ids) > 5 else "")
        super().__init__(
            f"{len(event_ids)} of {of} events were not acknowledged ({shown}): {reason}"
        )
        self.event_ids = event_ids
        self.of = of


class WindowNotRetained(LogError):
    """A window starts before the retained history, which starts at `available_from_ms`."""

    def __init__(self, from_ms: int, available_from_ms: int) -> None:
        super().__init__(
            f"the window starts at {from_ms} ms; the log is complete from {available_from_ms} ms on"
        )
        self.from_ms = from_ms
        self.available_from_ms = available_from_ms


class HistoryLost(LogError):
    """Records of a replay's offset range were deleted or truncated before they were read."""
