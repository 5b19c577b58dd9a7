"""Which records are copied, and with which headers."""

import pytest

from logbroker.mirror.domain.provenance import Headers, Provenance, SkipReason

NAMED = Provenance("id-east", "id-west", "east")
UNNAMED = Provenance("id-east", "id-west")
ADDED_ORIGIN = ("origin", b"east")
ADDED_SOURCE = ("mirrored-from", b"id-east")


@pytest.mark.parametrize("headers", [None, [], [("origin", None)], [("origin", b"")], [("x", b"")]])
def test_a_record_without_an_origin_was_made_at_the_source(headers: Headers | None) -> None:
    assert NAMED.headers_to_copy(headers) == [*(headers or ()), ADDED_ORIGIN]


def test_a_record_of_the_origin_is_copied_unchanged() -> None:
    headers = [("a", b"1"), ("origin", b"east"), ("a", None), ("a", b"")]
    assert NAMED.headers_to_copy(headers) is headers


def test_a_record_of_another_origin_is_skipped() -> None:
    assert NAMED.headers_to_copy([("origin", b"west")]) is SkipReason.ORIGIN


def test_of_several_origins_the_last_one_counts() -> None:
    assert NAMED.headers_to_copy([("origin", b"east"), ("origin", b"west")]) is SkipReason.ORIGIN
    twice = [("origin", b"west"), ("origin", b"east")]
    assert NAMED.headers_to_copy(twice) is twice


@pytest.mark.parametrize("provenance", [NAMED, UNNAMED])
def test_records_from_the_destination_are_skipped(provenance: Provenance) -> None:
    headers = [("mirrored-from", b"id-west"), ("origin", b"east"), ("mirrored-from", b"id-north")]
    assert provenance.headers_to_copy(headers) is SkipReason.LOOP


def test_without_an_origin_other_records_are_copied_with_the_source() -> None:
    headers = [("origin", b"north"), ("mirrored-from", b"id-north"), ("s\u00e4", None)]
    assert UNNAMED.headers_to_copy(headers) == [*headers, ADDED_SOURCE]
    assert UNNAMED.headers_to_copy(None) == [ADDED_SOURCE]


def test_a_record_does_not_return_over_three_clusters() -> None:
    round_trip = [("east", "west"), ("west", "north"), ("north", "east")]
    headers: Headers | SkipReason = []
    for source, destination in round_trip:
        assert not isinstance(headers, SkipReason)
        headers = Provenance(source, destination).headers_to_copy(headers)
    assert headers is SkipReason.LOOP
