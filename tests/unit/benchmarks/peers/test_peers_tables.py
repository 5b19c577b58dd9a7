"""Tables and plots of the comparison, from figures that are given."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.peers.exchange import Progress
from benchmarks.peers.plots import Point, draw, rates, write_plots
from benchmarks.peers.rounds import PEERS, Figures, Results, Work
from benchmarks.peers.tables import client_group, groups, qualified

SVG = "{http://www.w3.org/2000/svg}"


def work(rate: float) -> Work:
    """One second at this rate, sampled ten times."""
    points = tuple((tenth / 10, int(rate * tenth / 10)) for tenth in range(11))
    return Work(Progress(points), broker_us=4.0, client_us=0.5)


def figures(produced: float, consumed: float, disk_bytes: float) -> Figures:
    return Figures(work(produced), disk_bytes, work(consumed))


RESULTS = Results(
    {
        ("logbroker", 1): [figures(rate, 2_000, 270) for rate in (100, 400, 200)],
        ("redis", 1): [figures(rate, 500, 300) for rate in (50, 300, 600)],
        ("logbroker-all", 1): [figures(100, 2_000, 270)],
        ("rabbitmq-quorum", 1): [figures(25, 500, 260)],
        ("logbroker", 50): [figures(1_000, 2_000, 210)],
    },
    {},
    {},
)


def test_brokers_are_compared_with_logbroker_of_the_same_durability_by_medians() -> None:
    lines = {group.title: group.lines for group in groups(RESULTS)}
    cached = lines["Produce, batches of 1, acknowledged from the page cache"]
    assert [(line.name, line.figure, line.ratio, line.is_met) for line in cached] == [
        ("logbroker, acks=1", 200, None, None),
        ("Redis Streams, everysec", 300, 1.5, False),
    ]
    flushed = lines["Produce, batches of 1, flushed to the disk before the acknowledgement"]
    assert [(line.figure, line.ratio, line.is_met) for line in flushed] == [
        (100, None, None),
        (25, 0.25, True),
    ]
    consumed = lines["Consume, batches of 1"]
    assert [line.ratio for line in consumed] == [None, 0.25, None, 0.25]


def test_fewer_bytes_and_less_processor_time_are_better() -> None:
    lines = {group.title: group.lines for group in groups(RESULTS)}
    disk = lines["Bytes on the disk for a message of 200, batches of 1"]
    assert [line.is_met for line in disk] == [None, True, None, False]


def test_groups_without_figures_are_left_out() -> None:
    titles = [group.title for group in groups(RESULTS)]
    assert "Produce, batches of 50, acknowledged from the page cache" in titles
    assert "Produce, batches of 50, flushed to the disk before the acknowledgement" not in titles


def test_processor_time_that_a_round_could_not_measure_has_no_line() -> None:
    whole = figures(100, 100, 270)
    short = whole._replace(consumed=work(100)._replace(broker_us=None))
    results = Results({("logbroker", 1): [whole, short], ("redis", 1): [whole, whole]}, {}, {})
    lines = {group.title: group.lines for group in groups(results)}
    consumed = lines["Processor time of the broker, consume, batches of 1"]
    assert [(line.name, line.ratio) for line in consumed] == [("Redis Streams, everysec", None)]


def test_the_names_of_missed_targets_say_in_which_table_they_are() -> None:
    group = groups(RESULTS)[0]
    assert [line.name for line in qualified(group).lines] == [
        "logbroker, acks=1 (Produce, batches of 1, acknowledged from the page cache)",
        "Redis Streams, everysec (Produce, batches of 1, acknowledged from the page cache)",
    ]


def test_the_client_shows_how_busy_it_was() -> None:
    line = client_group(RESULTS).lines[0]
    assert line.name == "logbroker, acks=1, produce, batch 1"
    assert line.figure == pytest.approx(1e-4)


def test_rates_are_those_of_equal_parts() -> None:
    progress = Progress(((0.0, 0), (1.0, 10_000), (2.0, 30_000), (2.5, 30_100), (3.0, 40_000)))
    assert rates(progress, parts=4) == [
        Point(2.0, 10_000.0),
        Point(6.0, 20_000.0),
        Point(8.0, 10_000.0),
    ]


def test_the_last_part_may_be_shorter() -> None:
    progress = Progress(((0.0, 0), (1.0, 10_000), (1.5, 10_500)))
    assert rates(progress, parts=2)[-1] == Point(2.1, 1_000.0)


def test_a_plot_names_every_curve_in_the_order_of_its_last_rate() -> None:
    plot = draw("Rates", {"slow & old": [Point(1, 10), Point(2, 20)], "fast": [Point(1, 900)]})
    root = ET.fromstring(plot)
    names = [text.text for text in root.iter(f"{SVG}text")]
    assert names.index("fast") < names.index("slow & old")
    assert len(list(root.iter(f"{SVG}polyline"))) == 2
    width, height = map(float, (root.get("viewBox") or "").split()[2:])
    for curve in root.iter(f"{SVG}polyline"):
        for pair in (curve.get("points") or "").split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_plots_are_written_for_each_direction_and_durability(tmp_path: Path) -> None:
    written = write_plots(RESULTS, tmp_path / "plots")
    assert [path.name for path in written] == [
        "produce.svg",
        "produce-flushed.svg",
        "consume.svg",
        "consume-flushed.svg",
    ]
    text = written[0].read_text()
    assert f"{PEERS['redis'].title}, batch 1" in text
    assert PEERS["rabbitmq-quorum"].title not in text
