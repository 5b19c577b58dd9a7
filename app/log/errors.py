"""What can go wrong at the log, grouped by what the one who meets it can do.

LogError
├── LogUnavailable      try again: the log does not answer, or a topic is not there yet
│   └── TopicMissing        the log answers, and has no such topic
├── EstimatesBusy       try again in a few seconds
├── InspectionsBusy     try again in a few seconds
├── NotInLog            name a topic or a group that is there
├── BrowseRefused       ask for a page that can be
├── PublishFailed       publish the events it names again
├── WindowNotRetained   ask for a later window
└── HistoryLost         nothing: records that a replay counted on are gone from the log
"""


class LogError(Exception):
    """The root: nothing raises it as such."""


class LogUnavailable(LogError):
    """The log gives no answer, or not the one it gives when all is well."""


class TopicMissing(LogUnavailable):
    """The log has no topic of this name."""


class EstimatesBusy(LogError):
    """As many estimates as this process makes at a time are under way."""


class InspectionsBusy(LogError):
    """As many looks into the log as this process takes at a time are under way."""


class NotInLog(LogError):
    """Somebody looks for a topic or a group that the log does not have."""


class BrowseRefused(LogError):
    """A page of messages that cannot be: `field` is `value`, and `allowed` says what it may be."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed is {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class PublishFailed(LogError):
    """Some events were not acknowledged; whether the log holds them is unknown.

    `event_ids` are those of the events in question, in the order they were handed over.
    """

    def __init__(self, event_ids: tuple[str, ...], of: int, reason: str) -> None:
        shown = ", ".join(event_ids[:5]) + (", ..." if len(event_ids) > 5 else "")
        super().__init__(
            f"{len(event_ids)} of {of} events were not acknowledged ({shown}): {reason}"
        )
        self.event_ids = event_ids
        self.of = of


class WindowNotRetained(LogError):
    """A window starts before the history that is left; it is left from `available_from_ms` on."""

    def __init__(self, from_ms: int, available_from_ms: int) -> None:
        super().__init__(
            f"the window starts at {from_ms} ms; the log is complete from {available_from_ms} ms on"
        )
        self.from_ms = from_ms
        self.available_from_ms = available_from_ms


class HistoryLost(LogError):
    """Records of a replay's offset range were deleted, or cut off, before they were read."""
