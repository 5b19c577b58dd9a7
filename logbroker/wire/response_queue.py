"""Responses of one connection, sent in the order of their requests."""

from collections import deque

from logbroker.records.file_span import FileSpan

ResponseParts = list[bytes | FileSpan]
"""An encoded response, size prefix included; records are spans of segment files."""


class PendingResponse:
    """The response to one request; `parts` is None until `complete`."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: ResponseParts | None = None

    def complete(self, parts: ResponseParts) -> None:
        """Set the response, once."""
        assert self.parts is None, "a response is completed once"
        self.parts = parts


class ResponseQueue:
    """The responses of one connection that are not sent yet.

    A request without a response (Produce with acks=0) adds nothing to the queue, or every
    later response would wait forever.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: deque[PendingResponse] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self) -> PendingResponse:
        """Append the response to the newest request."""
        response = PendingResponse()
        self._pending.append(response)
        return response

    def pop_complete(self) -> list[ResponseParts]:
        """Remove and return the complete responses before the first incomplete one."""
        pending = self._pending
        complete = []
        while pending and (parts := pending[0].parts) is not None:
            complete.append(parts)
            pending.popleft()
        return complete
