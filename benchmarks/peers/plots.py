"""Figures 4 and 5 of the 2011 Kafka paper as SVG: messages per second over the megabytes so far."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.frames import MESSAGE_BYTES
from benchmarks.peers.exchange import Progress
from benchmarks.peers.rounds import PEERS, Figures, Results
from benchmarks.peers.tables import DURABILITY

POINTS: Final = 40
"""The parts of a run whose rates are drawn."""

WIDTH: Final = 860
HEIGHT: Final = 420
LEFT, RIGHT, TOP, BOTTOM = 84, 270, 34, 46
LABEL_HEIGHT: Final = 15

COLOURS: Final = (
    *("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e"),
    *("#8c564b", "#e377c2", "#17becf", "#bcbd22", "#7f7f7f"),
)

_STYLE: Final = """\
text { font: 12px sans-serif; fill: #333; }
.title { font-size: 14px; font-weight: bold; }
.grid { stroke: #ccc; stroke-width: 1; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
@media (prefers-color-scheme: dark) { text { fill: #ddd; } .grid { stroke: #555; } }
"""


_ACTIONS: Final[Sequence[tuple[str, str, Callable[[Figures], Progress]]]] = (
    ("produce", "Produce", lambda each: each.produced.progress),
    ("consume", "Consume", lambda each: each.consumed.progress),
)


class Point(NamedTuple):
    """The rate in messages/s of a part of a run that ends at `megabytes`."""

    megabytes: float
    rate: float


def rates(progress: Progress, parts: int = POINTS) -> list[Point]:
    """Return the rates of equal parts of a run, or of fewer where it was sampled less often."""
    points, (start_s, start) = [], progress.points[0]
    size = progress.messages / parts
    for at_s, messages in progress.points[1:]:
        is_last = messages == progress.messages
        if messages - start < size and not is_last:
            continue
        if at_s > start_s and messages > start:
            rate = (messages - start) / (at_s - start_s)
            points.append(Point(messages * MESSAGE_BYTES / 1e6, rate))
        start_s, start = at_s, messages
    return points


def write_plots(results: Results, folder: Path) -> list[Path]:
    """Write a plot for each direction and durability, and return the files.

    The curve of a broker is its round with the median rate.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for action, title, progress_of in _ACTIONS:
        for is_flushed, suffix in ((False, ""), (True, "-flushed")):
            curves = _curves(results, is_flushed, progress_of)
            if curves:
                path = folder / f"{action}{suffix}.svg"
                path.write_text(draw(f"{title}; messages {DURABILITY[is_flushed]}", curves))
                written.append(path)
    return written


def draw(title: str, curves: Mapping[str, Sequence[Point]]) -> str:
    """Return a plot with logarithmic axes; the names are in the order of the last rates."""
    points = [point for curve in curves.values() for point in curve]
    across = _Axis([point.megabytes for point in points], LEFT, WIDTH - RIGHT)
    up = _Axis([point.rate for point in points], HEIGHT - BOTTOM, TOP)
    elements = [
        f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>',
        *(_vertical(across.at(power), _number(power)) for power in across.powers),
        *(_horizontal(up.at(power), _number(power)) for power in up.powers),
        f'<text x="{LEFT}" y="{HEIGHT - 8}">MB of messages so far; vertical: messages/s</text>',
    ]
    ordered = sorted(curves.items(), key=lambda curve: -curve[1][-1].rate)
    for place, (name, curve) in enumerate(ordered):
        colour = COLOURS[place % len(COLOURS)]
        where = " ".join(
            f"{across.at(point.megabytes):.1f},{up.at(point.rate):.1f}" for point in curve
        )
        y = TOP + LABEL_HEIGHT * (place + 1)
        x = WIDTH - RIGHT + 14
        elements += [
            f'<polyline class="curve" stroke="{colour}" points="{where}"/>',
            f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{colour}"/>',
            f'<text x="{x + 16}" y="{y}">{escape(name)}</text>',
        ]
    body = "\n".join(elements)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        f"<style>\n{_STYLE}</style>\n{body}\n</svg>\n"
    )


class _Axis:
    """A logarithmic scale over whole powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        first = floor(log10(min(values)))
        last = max(ceil(log10(max(values))), first + 1)
        self.powers = [10.0**power for power in range(first, last + 1)]
        self._start = start
        self._per_power = (end - start) / (last - first)
        self._first = first

    def at(self, value: float) -> float:
        """Return the position of a value."""
        return self._start + (log10(value) - self._first) * self._per_power


def _vertical(x: float, label: str) -> str:
    return (
        f'<path class="grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{label}</text>'
    )


def _horizontal(y: float, label: str) -> str:
    return (
        f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _curves(
    results: Results, is_flushed: bool, progress_of: Callable[[Figures], Progress]
) -> dict[str, list[Point]]:
    """Return the rates of each broker and size of batches, from its round with the median rate."""
    curves = {}
    for (name, batch), rounds in results.figures.items():
        if PEERS[name].is_flushed is is_flushed:
            by_rate = sorted((progress_of(each) for each in rounds), key=lambda each: each.rate)
            curves[f"{PEERS[name].title}, batch {batch}"] = rates(by_rate[len(by_rate) // 2])
    return curves
