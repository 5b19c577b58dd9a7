import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.store.errors import InvalidCursor
from app.store.pages import Position, decode_cursor

places = st.integers(-(2**63) + 1, 2**63 - 1)


@given(places, st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_cursor_leads_back_to_its_position(place: int, item_id: str) -> None:
    assert decode_cursor(Position(place, item_id).encode()) == Position(place, item_id)


@given(st.text())
def test_whatever_else_is_refused_or_is_a_cursor(text: str) -> None:
    try:
        position = decode_cursor(text)
    except InvalidCursor:
        return
    assert position.encode() == text


def test_the_error_names_the_cursor_and_what_is_allowed() -> None:
    with pytest.raises(InvalidCursor, match="cursor is 'page 2'; allowed is the nextCursor"):
        decode_cursor("page 2")
