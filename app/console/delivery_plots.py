"""Plots and table of live deliveries in a time range, for all pages that show them. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.console.plots import BarPlot, LatencyPlot, deliveries_plot, latency_plot, width_words
from app.console.time_ranges import TimeRange
from app.domain.tallies import DeliveryTally, merged, summed


@dataclass(frozen=True, slots=True)
class RangeTab:
    """A link to a page with one range."""

    words: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class DeliveryPlots:
    """The deliveries of `shown`: their sum, and the plots of `bars`, oldest first.

    `width` is the length of a bar in words. `latency` is None without attempts.
    """

    shown: TimeRange
    tabs: tuple[RangeTab, ...]
    whole: DeliveryTally
    bars: tuple[DeliveryTally, ...]
    deliveries: BarPlot
    latency: LatencyPlot | None
    width: str

    @classmethod
    def of(
        cls,
        tallies: Iterable[DeliveryTally],
        shown: TimeRange,
        ranges: Iterable[TimeRange],
        url: Callable[[str], str],
    ) -> "DeliveryPlots":
        """Return the plots of tallies. `url` returns the URL of the page for a range's name."""
        bars = merged(tallies, shown.from_ms, shown.to_ms, shown.bar_ms)
        return cls(
            shown,
            tuple(RangeTab(each.words, url(each.name), each == shown) for each in ranges),
            summed(bars, shown.from_ms),
            bars,
            deliveries_plot(bars, shown.bar_ms),
            latency_plot(bars, shown.bar_ms),
            width_words(shown.bar_ms),
        )
