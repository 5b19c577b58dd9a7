"""Ids of deliveries."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.deliveries import (
    ID_CHARS_MAX,
    AttemptRecord,
    DeliveryPlace,
    format_delivery_id,
    parse_delivery_id,
)

PLACES = st.builds(
    DeliveryPlace,
    origin=st.text("abcdefghijklmnopqrstuvwxyz-0123456789é", max_size=40),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
)


@given(PLACES)
def test_an_id_names_its_place_and_needs_no_url_encoding(place: DeliveryPlace) -> None:
    text = format_delivery_id(place)
    assert text.startswith("dlv_")
    assert text.replace("-", "").replace("_", "").isalnum()
    assert len(text) <= ID_CHARS_MAX
    assert parse_delivery_id(text) == place


@given(PLACES, st.data())
def test_a_mistyped_id_names_no_place(place: DeliveryPlace, data: st.DataObject) -> None:
    text = format_delivery_id(place)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("AZaz09-_ .é\n"))
    changed = text[:at] + other + text[at + 1 :]
    assert parse_delivery_id(changed) is None or changed == text
    assert parse_delivery_id(text[:at]) is None
    assert parse_delivery_id(text + other) is None


@given(st.text(max_size=300))
def test_other_texts_are_no_ids(text: str) -> None:
    assert parse_delivery_id(text) is None
    assert parse_delivery_id("dlv_" + text) is None


def test_an_attempt_began_before_it_ended() -> None:
    assert AttemptRecord(1, 1_000, 31.4, 503, "HTTP 503").started_ms == 969
    assert AttemptRecord(1, 1_000, None, None, "no response").started_ms == 1_000
