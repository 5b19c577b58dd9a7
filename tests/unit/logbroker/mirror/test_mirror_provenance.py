"""What is carried over, and what is passed over, by headers alone."""

import pytest

from logbroker.mirror.provenance import Headers, PassedOver, Provenance

NAMED = Provenance("id-east", "id-west", "east")
UNNAMED = Provenance("id-east", "id-west")
ADDED_ORIGIN = ("origin", b"east")
ADDED_SOURCE = ("mirrored-from", b"id-east")


@pytest.mark.parametrize("headers", [None, [], [("origin", None)], [("origin", b"")], [("x", b"")]])
def test_a_record_without_an_origin_was_made_at_the_source(headers: Headers | None) -> None:
    assert NAMED.carried(headers) == [*(headers or ()), ADDED_ORIGIN]


def test_a_record_of_the_origin_is_carried_as_it_is() -> None:
    headers = [("a", b"1"), ("origin", b"east"), ("a", None), ("a", b"")]
    assert NAMED.carried(headers) is headers


def test_a_record_of_another_origin_stays_behind() -> None:
    assert NAMED.carried([("origin", b"west")]) is PassedOver.ORIGIN


def test_of_several_origins_the_last_one_counts() -> None:
    assert NAMED.carried([("origin", b"east"), ("origin", b"west")]) is PassedOver.ORIGIN
    twice = [("origin", b"west"), ("origin", b"east")]
    assert NAMED.carried(twice) is twice


@pytest.mark.parametrize("provenance", [NAMED, UNNAMED])
def test_what_has_been_at_the_destination_does_not_go_there_again(provenance: Provenance) -> None:
    headers = [("mirrored-from", b"id-west"), ("origin", b"east"), ("mirrored-from", b"id-north")]
    assert provenance.carried(headers) is PassedOver.LOOP


def test_without_an_origin_everything_else_is_carried_and_says_where_from() -> None:
    headers = [("origin", b"north"), ("mirrored-from", b"id-north"), ("s\u00e4", None)]
    assert UNNAMED.carried(headers) == [*headers, ADDED_SOURCE]
    assert UNNAMED.carried(None) == [ADDED_SOURCE]


def test_a_record_that_goes_round_three_clusters_ends_before_it_is_home() -> None:
    round_trip = [("east", "west"), ("west", "north"), ("north", "east")]
    headers: Headers | PassedOver = []
    for source, destination in round_trip:
        assert not isinstance(headers, PassedOver)
        headers = Provenance(source, destination).carried(headers)
    assert headers is PassedOver.LOOP
