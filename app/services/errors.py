"""Errors of the use cases, by what the caller can do.

RequestRefused
├── InvalidRequest           correct the fields
├── TooManyEvents            send fewer events per request
├── AccessDenied             use another API key
│   ├── AccountNotAllowed
│   ├── OperatorKeyRequired
│   └── ReadOnlyKey
├── DeliveriesNotRetained    request a later window
├── DeliveryNotFound         use the id of a delivery that the log has
├── EventNotFound            name a window that contains the time of the event
├── UnknownEvent             use the id of an event that the log has
├── EventIndexBehind         retry later
├── UnknownReceivers         send events for webhooks and accounts that exist
├── WebhookNotEnabled        enable the webhook
├── ReceiverNotVerified       correct the receiver
├── RestoreExpired           request the window again
├── NotRestoredHere          send the request to the replay's data centre
├── RateLimited              retry later
├── TooManyStreams           close a stream
└── NoStreamsLeft            retry later

Errors of the store, the log and the webhook client pass through unchanged.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from app.domain.windows import WindowRefused

VALUE_CHARACTERS_MAX: Final = 200
"""Enough of a value to find it in the request."""

FIELD_ERRORS_MAX: Final = 20
"""Ten thousand events may have as many errors."""


class FieldError(NamedTuple):
    """A wrong field: its path, its value and what is allowed."""

    field: str
    value: object
    allowed: str

    def sentence(self) -> str:
        """The error in words."""
        if self.value is None:
            return f"{self.field}: {self.allowed}"
        return f"{self.field} is {_shorten(self.value)!r}; allowed is {self.allowed}"

    def members(self) -> dict[str, object]:
        """The error as members of a problem document."""
        return {"field": self.field, "value": _shorten(self.value), "allowed": self.allowed}


def join_sentences(fields: Sequence[FieldError]) -> str:
    """The sentences of up to twenty fields, and the number of the others."""
    sentences = [each.sentence() for each in fields[:FIELD_ERRORS_MAX]]
    if len(fields) > FIELD_ERRORS_MAX:
        sentences.append(f"and {len(fields) - FIELD_ERRORS_MAX} more")
    return "; ".join(sentences)


def _shorten(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "..."


class RequestRefused(Exception):
    """The root: `fields` are wrong; `retry_after_s` is the earliest time for a retry."""

    def __init__(
        self,
        detail: str = "",
        fields: Sequence[FieldError] = (),
        *,
        retry_after_s: int | None = None,
    ) -> None:
        self.detail = detail or join_sentences(fields)
        self.fields = fields[:FIELD_ERRORS_MAX]
        self.retry_after_s = retry_after_s
        super().__init__(self.detail)


class InvalidRequest(RequestRefused):
    """A field has a value that is not allowed."""


class TooManyEvents(RequestRefused):
    """A request has more events than `REWIND_EVENTS_PER_REQUEST_MAX`."""


class AccessDenied(RequestRefused):
    """The API key does not permit the request."""


class AccountNotAllowed(AccessDenied):
    """A developer named an account other than the key's own."""


class OperatorKeyRequired(AccessDenied):
    """Only operators may send this request."""

    def __init__(self) -> None:
        super().__init__("operator key required")


class ReadOnlyKey(AccessDenied):
    """A read-only key was used for a change."""

    def __init__(self) -> None:
        super().__init__("the API key is read-only: only GET is allowed")


class UnknownReceivers(RequestRefused):
    """Events name webhooks or accounts that do not exist."""


class DeliveriesNotRetained(RequestRefused):
    """The log no longer has the begin of a window; `elsewhere` says where older deliveries are."""

    def __init__(self, window: WindowRefused, elsewhere: str) -> None:
        wrong = FieldError(window.field, window.value, window.allowed)
        parts = (f"{window.reason}: {wrong.sentence()}", elsewhere)
        super().__init__("; ".join(filter(None, parts)), [wrong])


class DeliveryNotFound(RequestRefused):
    """The log of this data centre has no such delivery, or it belongs to another account."""

    def __init__(self, delivery_id: str) -> None:
        shown = delivery_id[:VALUE_CHARACTERS_MAX]
        super().__init__(f"delivery {shown!r} does not exist, or the log no longer has it")


class EventNotFound(RequestRefused):
    """The log of this data centre has no such events in the window."""

    def __init__(self, event_ids: Sequence[str], field: str) -> None:
        allowed = "an event with a delivery between `from` and `to`, by default in the last day"
        super().__init__(
            f"{len(event_ids)} of the events not found; name a window with their time",
            [FieldError(field, each, allowed) for each in event_ids],
        )


class UnknownEvent(RequestRefused):
    """The log of this data centre has no event with this id that the caller may see."""

    def __init__(self, event_id: str) -> None:
        super().__init__(f"event {event_id!r} does not exist, or the log no longer has it")


class EventIndexBehind(RequestRefused):
    """The event was not found, and the log has records that are not indexed yet."""

    def __init__(self, records: int) -> None:
        super().__init__(
            f"event not found; {records} records of the log are not indexed yet", retry_after_s=10
        )


class WebhookNotEnabled(RequestRefused):
    """The webhook is not ENABLED, so nothing may be sent to it."""


class ReceiverNotVerified(RequestRefused):
    """The receiver did not pass the verification."""


class RestoreExpired(RequestRefused):
    """The restored records of a replay were deleted."""


class NotRestoredHere(RequestRefused):
    """The replay belongs to another data centre, which restores its records."""


class RateLimited(RequestRefused):
    """Too many requests in a minute, or at the same time."""


class TooManyStreams(RequestRefused):
    """The API key has as many open streams as allowed."""


class NoStreamsLeft(RequestRefused):
    """The server has as many open streams as allowed, or is stopping."""
