"""The style sheet, the script and the icon, with URLs that change with their content."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from app.console.urls import PREFIX
from app.http.problems import NOT_FOUND, Problem

MEDIA_TYPES: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

_ONE_YEAR: Final = "public, max-age=31536000, immutable"

router = APIRouter(prefix=PREFIX)


@router.get("/static/{name}")
def static_file(name: str, version: Annotated[str, Query(alias="v")] = "") -> Response:
    """Return a file, cacheable only if the requested version is the one served.

    During an upgrade, a page of one version may request its files from a process of another.
    """
    if name not in MEDIA_TYPES:
        raise Problem(
            NOT_FOUND, f"no static file with this name; allowed: {', '.join(MEDIA_TYPES)}"
        )
    caching = _ONE_YEAR if version == _version(name) else "no-store"
    headers = {"cache-control": caching}
    return Response(_content(name), headers=headers, media_type=MEDIA_TYPES[name])


@cache
def _content(name: str) -> bytes:
    return files("app.console").joinpath("static", name).read_bytes()


@cache
def _version(name: str) -> str:
    return sha256(_content(name)).hexdigest()[:12]


def static_url(name: str) -> str:
    """Return the URL of a file, with a hash of its content."""
    return f"/console/static/{name}?v={_version(name)}"
