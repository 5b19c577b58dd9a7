"""Indented JSON keeps its values, and has a maximum length."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.log.browser.json_layout import PARSED_CHARS_MAX, indent_json, is_json

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
ROOTS = st.lists(DOCUMENTS, max_size=4) | st.dictionaries(
    st.text(max_size=3), DOCUMENTS, max_size=3
)


@given(ROOTS, st.booleans())
def test_a_document_is_indented_as_by_python(document: Any, is_ascii: bool) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii)
    assert is_json(text)
    found = indent_json(text, 10**9)
    assert found.text == json.dumps(document, ensure_ascii=is_ascii, indent=2)
    assert not found.is_cut


@given(ROOTS, st.integers(0, 60))
def test_a_long_document_is_cut(document: Any, chars: int) -> None:
    text = json.dumps(document)
    whole = indent_json(text, 10**9).text
    found = indent_json(text, chars)
    assert found.text == whole[:chars]
    assert found.is_cut == (len(whole) > chars)


def test_numbers_and_names_keep_their_spelling() -> None:
    text = '{"a":1.10,"a":' + "9" * 5_000 + ',"b":1e999,"c":"\\u00e9"}'
    assert is_json(text)
    lines = indent_json(text, 10_000).text.splitlines()
    assert lines[1] == '  "a": 1.10,'
    assert lines[2] == f'  "a": {"9" * 5_000},'
    assert lines[3:5] == ['  "b": 1e999,', '  "c": "\\u00e9"']


def test_a_deep_document_is_cut() -> None:
    deep = "[" * 500 + "1," * 100_000 + "1" + "]" * 500
    assert is_json(deep)
    assert len(indent_json(deep, 1_000).text) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", '"a"', "null", "{", "[1,]", "[NaN]", "[Infinity]", "{'a': 1}", "hello"),
        "[" * 100_000,
    ],
)
def test_other_texts_are_not_json(text: str) -> None:
    assert not is_json(text)


def test_a_text_above_the_limit_is_not_parsed() -> None:
    assert is_json("[" + " " * (PARSED_CHARS_MAX - 2) + "]")
    assert not is_json("[" + " " * (PARSED_CHARS_MAX - 1) + "]")
