"""The lines of the mirror's benchmark."""

import pytest

from benchmarks.live_load import Latencies
from benchmarks.mirror_copy import Figures, lines_of


@pytest.mark.parametrize(("rate", "is_met"), [(80.0, True), (79.0, False)])
def test_the_mirror_copies_a_backlog_at_80_percent_of_the_bare_loop(
    rate: float, is_met: bool
) -> None:
    delay = Latencies(1.0, 2.0, 3.0)
    backlog, *others = lines_of([Figures(rate, 4.0, 100.0, delay, delay)])
    assert (backlog.name, backlog.is_met) == ("logbroker mirror, backlog", is_met)
    assert all(line.target is None for line in others)
