import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.errors import InvalidCursor
from app.store.pages import PageCursor, decode_cursor

values = st.integers(-(2**63) + 1, 2**63 - 1)


@given(values, st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_cursor_survives_encoding(value: int, item_id: str) -> None:
    assert decode_cursor(PageCursor(value, item_id).encode()) == PageCursor(value, item_id)


@given(st.text())
def test_any_text_is_a_valid_cursor_or_raises_an_error(text: str) -> None:
    try:
        cursor = decode_cursor(text)
    except InvalidCursor:
        return
    assert cursor.encode() == text


def test_the_error_names_the_cursor_and_the_allowed_value() -> None:
    with pytest.raises(InvalidCursor, match="cursor is 'page 2'; allowed: the nextCursor"):
        decode_cursor("page 2")
