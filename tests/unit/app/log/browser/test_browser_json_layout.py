"""JSON laid out: the words stay, the length is bounded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.log.browser.json_layout import PARSED_CHARS_MAX, is_json, lay_out

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
def test_a_document_is_laid_out_as_python_does_it(document: Any, is_ascii: bool) -> None:
    text = json.dumps(document, ensure_ascii=is_ascii)
    assert is_json(text)
    found = lay_out(text, 10**9)
    assert found.text == json.dumps(document, ensure_ascii=is_ascii, indent=2)
    assert not found.is_cut


@given(ROOTS, st.integers(0, 60))
def test_what_is_too_long_is_its_own_beginning(document: Any, chars: int) -> None:
    text = json.dumps(document)
    whole = lay_out(text, 10**9).text
    found = lay_out(text, chars)
    assert found.text == whole[:chars]
    assert found.is_cut == (len(whole) > chars)


def test_numbers_and_names_stay_as_they_were_sent() -> None:
    text = '{"a":1.10,"a":' + "9" * 5_000 + ',"b":1e999,"c":"\\u00e9"}'
    assert is_json(text)
    lines = lay_out(text, 10_000).text.splitlines()
    assert lines[1] == '  "a": 1.10,'
    assert lines[2] == f'  "a": {"9" * 5_000},'
    assert lines[3:5] == ['  "b": 1e999,', '  "c": "\\u00e9"']


def test_a_document_of_nothing_but_depth_is_cut_and_not_written_out() -> None:
    deep = "[" * 500 + "1," * 100_000 + "1" + "]" * 500
    assert is_json(deep)
    assert len(lay_out(deep, 1_000).text) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", '"a"', "null", "{", "[1,]", "[NaN]", "[Infinity]", "{'a': 1}", "hello"),
        "[" * 100_000,
    ],
)
def test_what_is_no_object_or_array_in_json_is_told_apart(text: str) -> None:
    assert not is_json(text)


def test_a_text_beyond_the_bound_is_not_looked_into() -> None:
    assert is_json("[" + " " * (PARSED_CHARS_MAX - 2) + "]")
    assert not is_json("[" + " " * (PARSED_CHARS_MAX - 1) + "]")
