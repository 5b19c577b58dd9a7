import pytest

from logbroker.cli.formats import format_time, parse_time


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_795_248_000_007, "2026-11-21T08:00:00.007Z"),
        # The last millisecond that Python's calendar has, and the first beyond.
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_a_timestamp_is_shown_as_a_date_while_the_calendar_lasts(
    timestamp_ms: int, text: str
) -> None:
    assert format_time(timestamp_ms) == text


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T08:00:00Z",
        "2026-11-21T09:00:00+01:00",
        "2026-11-21T08:00:00.000999Z",
    ],
)
def test_a_time_is_read_with_its_offset_and_cut_to_the_millisecond(text: str) -> None:
    assert parse_time(text) == 1_795_248_000_000


@pytest.mark.parametrize(
    "text", ["", "now", "2026-11-21", "2026-11-21T08:00:00", "1969-12-31T23:59:59Z", "1795248000"]
)
def test_what_names_no_moment_since_1970_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the caller words the message
        parse_time(text)
