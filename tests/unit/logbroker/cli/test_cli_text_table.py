from logbroker.cli.formats import table_lines


def test_columns_are_as_wide_as_their_widest_cell_and_what_is_unknown_is_a_dash() -> None:
    rows = [("clicks", 0, None), ("c", 10, 5)]
    assert list(table_lines(("TOPIC", "N", "LAG"), rows)) == [
        "TOPIC   N   LAG",
        "clicks  0   -",
        "c       10  5",
    ]


def test_without_rows_the_headings_are_left() -> None:
    assert list(table_lines(("A", "B"), [])) == ["A  B"]
