"""Find the route of a request by its raw path.

A subject may contain a slash, sent as `%2F`: paths are split before they are decoded.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from logbroker.schemas.rest.api import Route
from logbroker.schemas.rest.errors import RequestRejected

FIELDS_MAX: Final = 50
"""Names and values in one query."""


class Found(NamedTuple):
    """A route and its path parameters."""

    route: Route
    path: Mapping[str, str]


class Routing:
    """The routes, by the shape of their paths."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_length: dict[int, list[tuple[list[str], Route]]] = {}
        for route in routes:
            segments = _segments(route.path)
            self._by_length.setdefault(len(segments), []).append((segments, route))

    def find(self, method: str, raw_path: bytes) -> Found:
        """Find the route of a percent-encoded path.

        Raises:
            RequestRejected: 404 if no route has this path, 405 if only other methods have.
        """
        # Non-ASCII bytes should have been encoded; decoded as Latin-1 they match no name.
        segments = _segments(raw_path.decode("latin-1"))
        candidates = self._by_length.get(len(segments), [])
        fitting = [(shape, route) for shape, route in candidates if _fits(shape, segments)]
        for shape, route in fitting:
            if route.method == method:
                return Found(route, _named(shape, segments))
        if not fitting:
            raise RequestRejected(404, "HTTP 404 Not Found")
        allowed = ", ".join(sorted({route.method for _, route in fitting}))
        raise RequestRejected(
            405, f"HTTP 405 Method Not Allowed; allowed is {allowed}", {"allow": allowed}
        )


def query_of(query_string: bytes) -> dict[str, str]:
    """Parse the query; the last of repeated names counts.

    Raises:
        RequestRejected: it has too many fields, or is not UTF-8.
    """
    try:
        text = query_string.decode("ascii")
        listed = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        raise RequestRejected(
            400, f"The query is not UTF-8, or over {FIELDS_MAX} fields long."
        ) from None
    return dict(listed)


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").removesuffix("/").split("/")


def _is_open(segment: str) -> bool:
    return segment.startswith("{")


def _fits(shape: list[str], segments: list[str]) -> bool:
    pairs = zip(shape, segments, strict=True)
    return all(_is_open(wanted) or wanted == sent for wanted, sent in pairs)


def _named(shape: list[str], segments: list[str]) -> dict[str, str]:
    try:
        return {
            wanted.strip("{}"): unquote(sent, errors="strict")
            for wanted, sent in zip(shape, segments, strict=True)
            if _is_open(wanted)
        }
    except UnicodeDecodeError:
        raise RequestRejected(400, "The path is not UTF-8.") from None
