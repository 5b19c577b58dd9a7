"""How large a request's URL and headers may be."""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.problems import HEADERS_TOO_LARGE, URL_TOO_LONG, FieldError, Kind, Problem
from app.api.refusals import refuse

URL_BYTES_MAX: Final = 8 * 1024
"""What RFC 9110 section 4.1 asks everybody to take; the longest of ours is a cursor of 500."""

HEADERS_BYTES_MAX: Final = 16 * 1024
"""Names and values together; proxies add a kilobyte or two."""


class HeadLimit:
    """Refuses a request with a URL or headers that are larger than any honest ones."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        problem = _refused_head(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await refuse(problem, scope, receive, send)


def _refused_head(scope: Scope) -> Problem | None:
    url = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if url > URL_BYTES_MAX:
        return _too_large(URL_TOO_LONG, "url", url, URL_BYTES_MAX)
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    if headers > HEADERS_BYTES_MAX:
        return _too_large(HEADERS_TOO_LARGE, "headers", headers, HEADERS_BYTES_MAX)
    return None


def _too_large(kind: Kind, field: str, found: int, bytes_max: int) -> Problem:
    return Problem.of_fields(
        kind, [FieldError(field, f"{found} bytes", f"at most {bytes_max} bytes")]
    )
