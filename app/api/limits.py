"""How many bytes a request may bring, and for how long."""

import asyncio
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import BODY_TOO_LARGE, FieldError, Problem

DOCUMENT_BYTES_MAX: Final = 64 * 1024
"""For every body but events: the largest is a webhook with a URL of 2 KiB."""


BODY_S: Final = 60.0
"""How long a body may take: a minute for eight megabytes. One that drips holds a connection."""


class BodyTooLarge(HTTPException):
    """A body above its limit.

    An `HTTPException`, because FastAPI takes every other error met while a body is read for
    one of parsing.
    """

    def __init__(self, bytes_max: int, announced: int | None) -> None:
        super().__init__(BODY_TOO_LARGE.status)
        self.bytes_max = bytes_max
        self.announced = announced

    def problem(self) -> Problem:
        """The refusal as a problem."""
        value = "more" if self.announced is None else f"{self.announced} bytes"
        refused = FieldError("body", value, f"at most {self.bytes_max} bytes")
        return Problem.of_fields(BODY_TOO_LARGE, [refused])


class BodyLimit:
    """Counts the bytes of a body as they come, and stops reading at the first one too many.

    A Content-Length above the limit is refused before anything is read; one that lies, or
    none at all, changes nothing.
    """

    def __init__(self, app: ASGIApp, events_bytes_max: int) -> None:
        self._app = app
        self._events_bytes_max = events_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request with `receive` bounded."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        bytes_max = self._events_bytes_max if scope["path"] == "/events" else DOCUMENT_BYTES_MAX
        await self._app(scope, _bounded(receive, bytes_max, _announced(scope)), send)


def _announced(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None


def _bounded(receive: Receive, bytes_max: int, announced: int | None) -> Receive:
    count = 0
    is_coming = True
    end_s = asyncio.get_running_loop().time() + BODY_S

    async def bounded_receive() -> Message:
        nonlocal count, is_coming
        if announced is not None and announced > bytes_max:
            raise BodyTooLarge(bytes_max, announced)
        try:
            # Behind the body nothing comes but the client's leaving, however late that is.
            async with asyncio.timeout_at(end_s if is_coming else None):
                message = await receive()
        except TimeoutError:
            detail = f"the body did not come within {BODY_S:g} s"
            raise HTTPException(408, detail, {"connection": "close"}) from None
        is_coming = message.get("more_body", False)
        count += len(message.get("body", b""))
        if count > bytes_max:
            raise BodyTooLarge(bytes_max, announced)
        return message

    return bounded_receive
