"""Formats of numbers, times and sizes."""

import pytest

from app.console.formats import (
    NOTHING,
    age_tag,
    count,
    duration,
    percent,
    preformatted,
    rate,
    size,
    time_tag,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, NOTHING),
        (0, "0 s"),
        (0.0124, "12 ms"),
        (1, "1 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (61, "1 min 1 s"),
        (3_600, "1 h"),
        (7_380, "2 h 3 min"),
        (86_400 * 6, "6 d"),
        (86_400 + 3_600, "1 d 1 h"),
        (86_400 + 60, "1 d"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [
        (None, NOTHING),
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (123_456, "123 kB"),
        (5 * 10**9, "5.0 GB"),
        (10**16, "10000 TB"),
    ],
)
def test_a_size_has_a_suitable_unit(bytes_: int | None, text: str) -> None:
    assert size(bytes_) == text


def test_only_a_complete_share_is_100_percent() -> None:
    assert [percent(share) for share in (0.0, 0.9999, 1.0, 0.123)] == [
        "0 %",
        "99.9 %",
        "100 %",
        "12.3 %",
    ]


def test_numbers_have_thousands_separators() -> None:
    space = "\N{NARROW NO-BREAK SPACE}"
    assert count(1_234_567) == f"1{space}234{space}567"
    assert rate(1_234.4) == f"1{space}234/s"
    assert rate(2.04) == "2.0/s"


def test_times_are_machine_readable_and_ages_are_not_negative() -> None:
    assert str(time_tag(0)) == (
        '<time datetime="1970-01-01T00:00:00.000Z">1970-01-01 00:00:00</time>'
    )
    assert ">0 s ago<" in str(age_tag(5_000, 1_000))


def test_preformatted_text_is_escaped_and_keeps_its_carriage_returns() -> None:
    assert str(preformatted("1\r\n2\r</pre>&#13;")) == "1&#13;\n2&#13;&lt;/pre&gt;&amp;#13;"
