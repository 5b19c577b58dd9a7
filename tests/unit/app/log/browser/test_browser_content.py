"""How bytes of a message are displayed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.log.browser.content import Undecoded, content_of

FRAME = b"\0\0\0\1\2"
"""Schema 258."""


def read(value: bytes) -> bytes:
    assert value[:5] == FRAME
    return b'{"read":' + value[5:] + b"}"


def refuse(value: bytes) -> bytes:
    raise Undecoded("unknown schema")


def test_json_is_indented() -> None:
    found = content_of(b'{"a":[1,{}]}', 100)
    assert found.format == "json"
    assert found.text == '{\n  "a": [\n    1,\n    {}\n  ]\n}'
    assert (found.size, found.raw, found.is_cut) == (12, b'{"a":[1,{}]}', False)


def test_avro_is_decoded_by_its_schema() -> None:
    found = content_of(FRAME + b"7", 100, read)
    assert (found.format, found.schema_id) == ("avro", 258)
    assert found.text == '{\n  "read": 7\n}'
    assert found.raw == FRAME + b"7"


def test_undecodable_avro_shows_its_schema_and_the_reason() -> None:
    found = content_of(FRAME + b"7", 100, refuse)
    assert (found.format, found.text, found.schema_id) == ("binary", None, 258)
    assert found.note == "unknown schema"
    assert found.raw == FRAME + b"7"


@pytest.mark.parametrize("value", [b"\0", b"\0\0\0\1", b"\1" + FRAME])
def test_other_values_have_no_schema_id(value: bytes) -> None:
    found = content_of(value, 100, refuse)
    assert (found.format, found.schema_id, found.note) == ("binary", None, None)


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (b"", "text", ""),
        (b"42", "text", "42"),
        (b"one\n\ttwo\r\n", "text", "one\n\ttwo\r\n"),
        ("Gr\u00fc\u00dfe \U0001f600".encode(), "text", "Gr\u00fc\u00dfe \U0001f600"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
        (b'{"a":', "text", '{"a":'),
        (b"\xff\xfe", "binary", None),
        (b"a\x00b", "binary", None),
        (b"\x1b[2J", "binary", None),
        (b"\xc2\x85", "binary", None),
    ],
)
def test_text_is_displayed_as_text_and_bytes_as_binary(
    value: bytes, form: str, text: str | None
) -> None:
    found = content_of(value, 100)
    assert (found.format, found.text, found.is_cut) == (form, text, False)


@given(st.text(alphabet="ab\u00fc\u20ac\U0001f600", min_size=1), st.integers(1, 30))
def test_cut_text_ends_with_a_complete_character(text: str, shown: int) -> None:
    value = text.encode()
    found = content_of(value, shown)
    assert found.format == "text"
    assert found.text == value[:shown].decode(errors="ignore")
    assert (found.size, found.is_cut) == (len(value), len(value) > shown)


@given(st.binary(max_size=300), st.integers(1, 100))
def test_the_display_limit_is_kept(value: bytes, shown: int) -> None:
    found = content_of(value, shown, refuse)
    assert found.raw == value[:shown]
    assert len(found.text or "") <= shown
    assert found.size == len(value)
    assert found.text is not None or found.format == "binary"
