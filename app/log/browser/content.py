"""What bytes of a message mean to a person: JSON, Avro, text, or nothing but bytes.

Source: Confluent Schema Registry, "Formats, Serializers, and Deserializers", "Wire format", for
what begins with a zero byte and the id of a schema.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from app.log.browser.json_layout import PARSED_CHARS_MAX, is_json, lay_out

VALUE_BYTES_MAX: Final = 65_536
"""Shown of a value; how long it is, is told."""

KEY_BYTES_MAX: Final = 4_096
HEADER_BYTES_MAX: Final = 1_024

_FRAME_BYTES: Final = 5
_MAGIC: Final = b"\0"

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What no text for people has; with them, bytes that happen to be UTF-8 are shown as bytes."""


class Undecoded(Exception):
    """Why a value that names a schema was not read by it."""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes as they are shown. Of `size` bytes `raw` has the first, as many as are shown.

    `text` is what they mean, None where they are shown as bytes alone: `format` tells how it came
    to be, with JSON and Avro laid out. `is_cut` says that some of it was left out. `schema_id` is
    what stands behind a zero byte, whether anybody knows the schema or not; `note` says why it was
    not read by it.
    """

    size: int
    raw: bytes
    format: Literal["json", "avro", "text", "binary"]
    text: str | None
    is_cut: bool
    schema_id: int | None = None
    note: str | None = None


def content_of(
    value: bytes, bytes_max: int, avro_to_json: Callable[[bytes], bytes] | None = None
) -> Content:
    """What some bytes are, shown to `bytes_max` bytes or characters.

    `avro_to_json` reads values that name a schema, and raises Undecoded; without it they are bytes.
    """
    raw = value[:bytes_max]
    is_framed = value[:1] == _MAGIC and len(value) >= _FRAME_BYTES
    if is_framed and avro_to_json is not None:
        return _framed(value, raw, bytes_max, avro_to_json)
    if len(value) <= PARSED_CHARS_MAX:
        whole = _text(value)
        if whole is not None and is_json(whole):
            laid_out = lay_out(whole, bytes_max)
            return Content(len(value), raw, "json", laid_out.text, laid_out.is_cut)
    text = _text(raw, is_cut=len(raw) < len(value))
    form: Literal["text", "binary"] = "binary" if text is None else "text"
    return Content(len(value), raw, form, text, len(raw) < len(value))


def _framed(
    value: bytes, raw: bytes, bytes_max: int, avro_to_json: Callable[[bytes], bytes]
) -> Content:
    schema_id = int.from_bytes(value[1:_FRAME_BYTES])
    try:
        document = avro_to_json(value).decode()
    except Undecoded as error:
        is_cut = len(raw) < len(value)
        return Content(len(value), raw, "binary", None, is_cut, schema_id, str(error))
    laid_out = lay_out(document, bytes_max)
    return Content(len(value), raw, "avro", laid_out.text, laid_out.is_cut, schema_id)


def _text(value: bytes, *, is_cut: bool = False) -> str | None:
    """The text that UTF-8 makes of bytes; of those that were cut, up to the last whole letter."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(value, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text
