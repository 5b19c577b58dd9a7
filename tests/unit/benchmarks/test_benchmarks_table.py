"""A line shows a figure with its ratio to the baseline and its target."""

from benchmarks.table import (
    Baseline,
    Group,
    Line,
    at_least,
    at_most,
    share_at_least,
    share_at_most,
    verdict,
)


def test_a_figure_is_compared_with_its_target() -> None:
    assert Line("rate", 5_000.0, "msg/s", target=at_least(5_000)).is_met
    assert not Line("rate", 4_999.0, "msg/s", target=at_least(5_000)).is_met
    assert not Line("cost", 1.1, "s/GB", target=at_most(1)).is_met


def test_a_ratio_is_compared_with_its_target() -> None:
    baseline = Baseline("before", 200.0)
    assert Line("rate", 160.0, "msg/s", baseline, share_at_least(0.8)).is_met
    assert not Line("cost", 241.0, "ms", baseline, share_at_most(1.2)).is_met


def test_cells_show_three_significant_digits() -> None:
    line = Line("rate", 1_234_567.0, "msg/s", Baseline("bare", 2_000_000.0), at_least(10**6))
    assert line.cells() == (
        *("rate", "1,230,000", "msg/s", "61.7%", "bare", ">= 1,000,000", "yes"),
    )


def test_the_verdict_names_missed_targets() -> None:
    lines = [
        Line("good", 2.0, "s", target=at_least(1)),
        Line("bad", 2.0, "s", target=at_most(1)),
        Line("plain", 2.0, "s"),
    ]
    assert verdict([Group("all", lines)]) == "1 of 2 targets met; missed: bad"
