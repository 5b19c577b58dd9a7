"""The style sheet and the script, which change with the version alone."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from app.api.problems import NOT_FOUND, Problem

MEDIA_TYPES: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}

_A_YEAR: Final = "public, max-age=31536000, immutable"

router = APIRouter()


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """Give a file; it may be kept, for `static_url` changes when it does."""
    if name not in MEDIA_TYPES:
        raise Problem(NOT_FOUND, "no file has this name")
    return Response(
        _content(name), headers={"cache-control": _A_YEAR}, media_type=MEDIA_TYPES[name]
    )


@cache
def _content(name: str) -> bytes:
    return files("app.console").joinpath("static", name).read_bytes()


@cache
def static_url(name: str) -> str:
    """Where a page finds a file, by its name and content."""
    return f"/console/static/{name}?v={sha256(_content(name)).hexdigest()[:12]}"
