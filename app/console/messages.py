"""The messages of a topic, page by page, with a link to a replay from each delivery."""

from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.formats import format_field_time, parse_field_time
from app.console.forms import form_rejection
from app.console.page_requests import OperatorRequest
from app.console.urls import NEW_REPLAY, PREFIX, page_url
from app.domain.options import Source
from app.domain.windows import TimeUnreadable
from app.http.problems import INVALID_REQUEST, Problem
from app.log.browser import BrowseQuery, Content, Message, MessageOrder, MessagePage
from app.log.errors import BrowseRefused
from app.log.topics import DELIVERY_ARCHIVE, DELIVERY_LOG
from app.services.errors import FieldError

FIELDS: Final = ("from", "partition", "offset", "time")

HEX_BYTES_MAX: Final = 4_096
"""Bytes of a hex dump. A page of fifty complete values would be megabytes."""

PREVIEW_CHARACTERS: Final = 150

_DIGITS_MAX: Final = 19

_SOURCES: Final = {DELIVERY_LOG: Source.LOG, DELIVERY_ARCHIVE: Source.ARCHIVE}
"""The replay source of each topic with deliveries."""

router = APIRouter(prefix=PREFIX)


@dataclass(frozen=True, slots=True)
class BrowseForm:
    """The values of the form. `origin` is where to start."""

    origin: str
    partition: str
    offset: str
    time: str


@router.get("/log/topics/{name}/messages")
async def messages_page(name: str, request: OperatorRequest) -> Response:
    """Show messages from the newest, the oldest, an offset or a time."""
    query = request.http.query_params
    typed = BrowseForm(
        query.get("from", "newest"),
        query.get("partition", "").strip(),
        query.get("offset", "").strip(),
        query.get("time", "").strip(),
    )
    page: MessagePage | None = None
    rejection = None
    try:
        question = _parse_question(name, typed, query.get("cursor"))
        page = await run_in_threadpool(request.services.browser.browse, question)
    except (Problem, BrowseRefused) as error:
        rejection = form_rejection(error, FIELDS)
    here = f"/console/log/topics/{quote(name)}/messages"
    return await request.render_form(
        "log_messages.html",
        rejection,
        name=name,
        here=here,
        typed=typed,
        page=page,
        replay_url=partial(_replay_url, _SOURCES.get(name)),
        hex_lines=hex_lines,
        preview=preview,
        following=None if page is None else _cursor_url(here, typed, page.next_cursor),
        previous=None if page is None else _cursor_url(here, typed, page.previous_cursor),
    )


def _parse_question(topic: str, typed: BrowseForm, cursor: str | None) -> BrowseQuery:
    """Return the query of a form. From a time or an offset, the oldest message comes first.

    Raises:
        Problem: a field is not a number or not a time.
    """
    if cursor:
        return BrowseQuery(topic, cursor=cursor)
    partition = _parse_number("partition", typed.partition)
    match typed.origin:
        case "newest":
            return BrowseQuery(topic, partition)
        case "oldest":
            return BrowseQuery(topic, partition, MessageOrder.OLDEST)
        case "offset":
            offset = _parse_number("offset", typed.offset)
            if offset is None:
                raise Problem.of_fields(
                    INVALID_REQUEST, [FieldError("offset", None, "required to start at an offset")]
                )
            return BrowseQuery(topic, partition, MessageOrder.OLDEST, offset=offset)
        case "time":
            return BrowseQuery(
                topic, partition, MessageOrder.OLDEST, time_ms=_parse_time("time", typed.time)
            )
    allowed = "newest, oldest, offset, time"
    raise Problem.of_fields(INVALID_REQUEST, [FieldError("from", typed.origin, allowed)])


def _parse_number(field: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise Problem.of_fields(INVALID_REQUEST, [FieldError(field, text, "a whole number")])
    return int(text)


def _parse_time(field: str, text: str) -> int:
    try:
        return parse_field_time(text)
    except TimeUnreadable as error:
        invalid = FieldError(field, text or None, error.allowed)
        raise Problem.of_fields(INVALID_REQUEST, [invalid]) from None


def _cursor_url(here: str, typed: BrowseForm, cursor: str | None) -> str | None:
    if cursor is None:
        return None
    # The form keeps its values on the following pages.
    fields = {"from": typed.origin, "partition": typed.partition, "offset": typed.offset}
    fields |= {"time": typed.time, "cursor": cursor}
    return page_url(here, fields)


def _replay_url(source: Source | None, message: Message) -> str | None:
    """Return the URL of a new replay for the webhook of a message, from its time."""
    key = message.key
    if source is None or message.time_ms is None or key is None or key.text is None:
        return None
    fields = {"webhookId": key.text, "from": format_field_time(message.time_ms)}
    if source is not Source.LOG:
        fields["source"] = source.value
    return page_url(NEW_REPLAY, fields)


def preview(content: Content | None) -> str:
    """Return the start of a value on one line."""
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
    """Return the first bytes as a hex dump: offset, sixteen bytes in hex, and in ASCII."""
    shown = raw[:HEX_BYTES_MAX]
    lines = []
    for start in range(0, len(shown), 16):
        row = shown[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {text}")
    return "\n".join(lines)
