"""The messages of a topic, a page at a time; and from one that is owed, the way to a replay."""

from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import DoorsDependency
from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.console.addresses import NEW_REPLAY, address
from app.console.form_times import field_time, read_time
from app.console.gate import OperatorDependency
from app.console.refused_forms import refusal_of
from app.console.rendering import rendered
from app.domain.options import Source
from app.domain.windows import TimeUnreadable
from app.log.browser import BrowseQuestion, Content, Message, MessagePage, Order
from app.log.errors import BrowseRefused
from app.log.topics import DELIVERY_ARCHIVE, DELIVERY_LOG

FIELDS: Final = ("from", "partition", "offset", "time")

HEX_BYTES_MAX: Final = 4_096
"""Shown as hex; a page of fifty whole values would be megabytes."""

PREVIEW_CHARACTERS: Final = 150

_DIGITS_MAX: Final = 19

_SOURCES: Final = {DELIVERY_LOG: Source.LOG, DELIVERY_ARCHIVE: Source.ARCHIVE}
"""What replays read each of these topics as."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Typed:
    """The fields of the form as they were typed; `origin` is where to begin."""

    origin: str
    partition: str
    offset: str
    time: str


@router.get("/log/topics/{name}/messages")
async def messages_page(
    name: str, request: Request, doors: DoorsDependency, _viewer: OperatorDependency
) -> Response:
    """Browse a topic from its newest or oldest message, from an offset or a time."""
    query = request.query_params
    typed = Typed(
        query.get("from", "newest"),
        query.get("partition", "").strip(),
        query.get("offset", "").strip(),
        query.get("time", "").strip(),
    )
    page: MessagePage | None = None
    refusal = None
    try:
        question = _question(name, typed, query.get("cursor"))
        page = await run_in_threadpool(doors.browser.browse, question)
    except (Problem, BrowseRefused) as refused:
        refusal = refusal_of(refused, FIELDS)
    here = f"/console/log/topics/{quote(name)}/messages"
    return await rendered(
        request,
        "log_messages.html",
        200 if refusal is None else refusal.status,
        name=name,
        here=here,
        typed=typed,
        page=page,
        refusal=refusal,
        replay_url=partial(_replay_url, _SOURCES.get(name)),
        hex_lines=hex_lines,
        preview=preview,
        following=None if page is None else _cursor_url(here, typed, page.next_cursor),
        previous=None if page is None else _cursor_url(here, typed, page.previous_cursor),
    )


def _question(topic: str, typed: Typed, cursor: str | None) -> BrowseQuestion:
    """What the form asks for. A time shows what came from then on, the oldest first.

    Raises:
        Problem: a field is no number, or no time.
    """
    if cursor:
        return BrowseQuestion(topic, cursor=cursor)
    partition = _number("partition", typed.partition)
    match typed.origin:
        case "newest":
            return BrowseQuestion(topic, partition)
        case "oldest":
            return BrowseQuestion(topic, partition, Order.OLDEST)
        case "offset":
            offset = _number("offset", typed.offset)
            if offset is None:
                raise Problem.of_fields(
                    INVALID_REQUEST, [FieldError("offset", None, "required to begin there")]
                )
            return BrowseQuestion(topic, partition, Order.OLDEST, offset=offset)
        case "time":
            return BrowseQuestion(topic, partition, Order.OLDEST, time_ms=_time("time", typed.time))
    allowed = "newest, oldest, offset, time"
    raise Problem.of_fields(INVALID_REQUEST, [FieldError("from", typed.origin, allowed)])


def _number(field: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise Problem.of_fields(INVALID_REQUEST, [FieldError(field, text, "a whole number")])
    return int(text)


def _time(field: str, text: str) -> int:
    try:
        return read_time(text)
    except TimeUnreadable as error:
        refused = FieldError(field, text or None, error.allowed)
        raise Problem.of_fields(INVALID_REQUEST, [refused]) from None


def _cursor_url(here: str, typed: Typed, cursor: str | None) -> str | None:
    if cursor is None:
        return None
    # What was typed comes along, for the form to show still where the pages began.
    fields = {"from": typed.origin, "partition": typed.partition, "offset": typed.offset}
    fields |= {"time": typed.time, "cursor": cursor}
    return address(here, fields)


def _replay_url(source: Source | None, message: Message) -> str | None:
    """Where a replay from this message on is asked for: of its webhook, from its time on."""
    key = message.key
    if source is None or message.time_ms is None or key is None or key.text is None:
        return None
    fields = {"webhookId": key.text, "from": field_time(message.time_ms)}
    if source is not Source.LOG:
        fields["source"] = source.value
    return address(NEW_REPLAY, fields)


def preview(content: Content | None) -> str:
    """The beginning of a value on one line."""
    if content is None:
        return "null"
    if content.text is None:
        return content.raw[: PREVIEW_CHARACTERS // 3].hex(" ")
    line = " ".join(content.text[: 2 * PREVIEW_CHARACTERS].split())
    return (
        line
        if len(line) <= PREVIEW_CHARACTERS
        else f"{line[:PREVIEW_CHARACTERS]}\N{HORIZONTAL ELLIPSIS}"
    )


def hex_lines(raw: bytes) -> str:
    """The first bytes as a dump: offset, sixteen bytes in hex, and what of them is ASCII."""
    shown = raw[:HEX_BYTES_MAX]
    lines = []
    for start in range(0, len(shown), 16):
        row = shown[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)
