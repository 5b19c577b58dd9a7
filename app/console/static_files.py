"""The style sheet and the script, which change with the version alone."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Final

from fastapi import APIRouter, Query
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
def static_file(name: str, version: Annotated[str, Query(alias="v")] = "") -> Response:
    """Give a file; the version that was asked for may be kept, for `static_url` names another.

    While processes of two versions serve, the page of one may ask the other for its files.
    """
    if name not in MEDIA_TYPES:
        raise Problem(NOT_FOUND, "no file has this name")
    kept = _A_YEAR if version == _version(name) else "no-store"
    return Response(_content(name), headers={"cache-control": kept}, media_type=MEDIA_TYPES[name])


@cache
def _content(name: str) -> bytes:
    return files("app.console").joinpath("static", name).read_bytes()


@cache
def _version(name: str) -> str:
    return sha256(_content(name)).hexdigest()[:12]


def static_url(name: str) -> str:
    """Where a page finds a file, by its name and content."""
    return f"/console/static/{name}?v={_version(name)}"
