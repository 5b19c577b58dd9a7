"""Decodes bytes of a message for display: JSON, Avro, text, or binary.

Source: Confluent Schema Registry, "Formats, Serializers, and Deserializers", "Wire format", for
values that begin with a zero byte and a schema id.
"""

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from app.log.browser.json_layout import PARSED_CHARS_MAX, indent_json, is_json

VALUE_BYTES_MAX: Final = 65_536
"""The displayed part of a value; its size is always displayed."""

KEY_BYTES_MAX: Final = 4_096
HEADER_BYTES_MAX: Final = 1_024

_FRAME_BYTES: Final = 5
_MAGIC: Final = b"\0"

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters that no readable text has; UTF-8 with them is displayed as binary."""


class Undecoded(Exception):
    """A value with a schema id could not be decoded; the message says why."""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes for display; `raw` has the first of `size` bytes.

    `text` is the decoded text, None for binary; JSON and Avro are indented. `is_cut` says that it
    is incomplete. `schema_id` follows a leading zero byte, whether the schema exists or not;
    `note` says why the value was not decoded by it.
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
    """Decode bytes for display, up to `bytes_max` bytes or characters.

    `avro_to_json` decodes values with a schema id, and raises Undecoded; else they are binary.
    """
    raw = value[:bytes_max]
    is_framed = value[:1] == _MAGIC and len(value) >= _FRAME_BYTES
    if is_framed and avro_to_json is not None:
        return _framed(value, raw, bytes_max, avro_to_json)
    if len(value) <= PARSED_CHARS_MAX:
        whole = _text(value)
        if whole is not None and is_json(whole):
            indented = indent_json(whole, bytes_max)
            return Content(len(value), raw, "json", indented.text, indented.is_cut)
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
    indented = indent_json(document, bytes_max)
    return Content(len(value), raw, "avro", indented.text, indented.is_cut, schema_id)


def _text(value: bytes, *, is_cut: bool = False) -> str | None:
    """Decode UTF-8; cut bytes are decoded up to the last complete character."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(value, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text
