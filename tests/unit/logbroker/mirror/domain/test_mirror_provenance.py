"""Which records are copied, and with which headers."""

import pytest

from logbroker.mirror.domain.provenance import Headers, Provenance, SkipReason

NAMED = Provenance("id-east", "id-west", "east")
UNNAMED = Provenance("id-east", "id-west")
ADDED_ORIGIN = ("origin", b"east")
ADDED_SOURCE = ("mirrored-from", b"id-east")


def headers_to_copy(provenance: Provenance, headers: Headers) -> Headers | SkipReason:
    copied, reason, _ = provenance.inspect_headers(headers)
    return reason or copied


@pytest.mark.parametrize("headers", [[], [("origin", None)], [("origin", b"")], [("x", b"")]])
def test_a_record_without_an_origin_was_made_at_the_source(headers: Headers) -> None:
    assert headers_to_copy(NAMED, headers) == [*headers, ADDED_ORIGIN]


def test_a_record_of_the_origin_is_copied_unchanged() -> None:
    headers = [("a", b"1"), ("origin", b"east"), ("a", None), ("a", b"")]
    assert headers_to_copy(NAMED, headers) is headers


def test_a_record_of_another_origin_is_skipped() -> None:
    assert headers_to_copy(NAMED, [("origin", b"west")]) is SkipReason.ORIGIN


def test_of_several_origins_the_last_one_counts() -> None:
    assert headers_to_copy(NAMED, [("origin", b"east"), ("origin", b"west")]) is SkipReason.ORIGIN
    twice = [("origin", b"west"), ("origin", b"east")]
    assert headers_to_copy(NAMED, twice) is twice


@pytest.mark.parametrize("provenance", [NAMED, UNNAMED])
def test_records_from_the_destination_are_skipped(provenance: Provenance) -> None:
    headers = [("mirrored-from", b"id-west"), ("origin", b"east"), ("mirrored-from", b"id-north")]
    assert headers_to_copy(provenance, headers) is SkipReason.LOOP


def test_without_an_origin_other_records_are_copied_with_the_source() -> None:
    headers = [("origin", b"north"), ("mirrored-from", b"id-north"), ("s\u00e4", None)]
    assert headers_to_copy(UNNAMED, headers) == [*headers, ADDED_SOURCE]
    assert headers_to_copy(UNNAMED, []) == [ADDED_SOURCE]


def test_a_record_does_not_return_over_three_clusters() -> None:
    round_trip = [("east", "west"), ("west", "north"), ("north", "east")]
    headers: Headers | SkipReason = []
    for source, destination in round_trip:
        assert not isinstance(headers, SkipReason)
        headers = headers_to_copy(Provenance(source, destination), headers)
    assert headers is SkipReason.LOOP


@pytest.mark.parametrize("origin", [b"east", b"west", None])
@pytest.mark.parametrize("source", [b"id-west", b"id-north"])
def test_the_last_audit_mark_counts_in_copied_and_in_skipped_records(
    origin: bytes | None, source: bytes
) -> None:
    headers = [("audit", b"1"), ("audit", b"2"), ("origin", origin), ("mirrored-from", source)]
    assert NAMED.inspect_headers(headers)[2] == b"2"
    assert NAMED.inspect_headers(headers[2:])[2] is None
