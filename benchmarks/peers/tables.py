"""The tables of the comparison: medians of the rounds, each compared with `logbroker`.

A target says that `logbroker` is at least as good. A line that misses it names a broker that is
better.
"""

from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.peers.peer import Peer
from benchmarks.peers.rounds import PEERS, Figures, Results
from benchmarks.scale import median
from benchmarks.table import Baseline, Group, Line, Target, share_at_least, share_at_most

BATCHES: Final = (1, 50)

DURABILITY: Final = {
    False: "acknowledged from the page cache",
    True: "flushed to the disk before the acknowledgement",
}

Value = Callable[[Figures], float | None]

_COSTS: Final[Sequence[tuple[str, str, Value]]] = (
    ("Processor time of the broker, produce", "us/msg", lambda each: each.produced.broker_us),
    ("Processor time of the broker, consume", "us/msg", lambda each: each.consumed.broker_us),
    ("Bytes on the disk for a message of 200", "bytes", lambda each: each.disk_bytes),
)

_CLIENT: Final[Sequence[tuple[str, Value]]] = (
    ("produce", lambda each: each.produced.client_cores),
    ("consume", lambda each: each.consumed.client_cores),
)


def groups(results: Results) -> list[Group]:
    """Return the groups that have at least one figure."""
    all_groups = [
        *(
            Group(
                f"Produce, batches of {batch}, {DURABILITY[is_flushed]}",
                _lines(results, batch, is_flushed, "msg/s", _produce_rate, share_at_most(1.0)),
            )
            for batch in BATCHES
            for is_flushed in DURABILITY
        ),
        *(
            _whole_group(results, f"Consume, batches of {batch}", "msg/s", _consume_rate, batch)
            for batch in BATCHES
        ),
        *(
            _whole_group(results, f"{title}, batches of {batch}", unit, value, batch)
            for title, unit, value in _COSTS
            for batch in BATCHES
        ),
    ]
    return [group for group in all_groups if group.lines]


def qualified(group: Group) -> Group:
    """Return the group with lines whose names are unique among all groups."""
    lines = [line._replace(name=f"{line.name} ({group.title})") for line in group.lines]
    return group._replace(lines=lines)


def client_group(results: Results) -> Group:
    """Return the cores that the raw client used: a client near 1 limits the rate."""
    lines = [
        Line(
            f"{PEERS[name].title}, {action}, batch {batch}",
            median(_measured(rounds, value)),
            "cores",
        )
        for (name, batch), rounds in results.figures.items()
        for action, value in _CLIENT
    ]
    return Group("The raw client", lines)


def _produce_rate(each: Figures) -> float:
    return each.produced.progress.rate


def _consume_rate(each: Figures) -> float:
    return each.consumed.progress.rate


def _whole_group(results: Results, title: str, unit: str, value: Value, batch: int) -> Group:
    """Return a group with the brokers of both durabilities, each compared within its own."""
    target = share_at_most(1.0) if value is _consume_rate else share_at_least(1.0)
    lines = [
        line
        for is_flushed in DURABILITY
        for line in _lines(results, batch, is_flushed, unit, value, target)
    ]
    return Group(title, lines)


def _lines(
    results: Results, batch: int, is_flushed: bool, unit: str, value: Value, target: Target
) -> list[Line]:
    """Return a line for each broker of one durability that has the figure in every round."""
    figures = {
        peer: median(found)
        for name, peer in PEERS.items()
        if peer.is_flushed is is_flushed
        and (found := _measured(results.figures.get((name, batch), []), value))
    }
    ours = next((figure for peer, figure in figures.items() if _is_ours(peer)), None)
    baseline = None if ours is None else Baseline("logbroker", ours)
    return [
        Line(peer.title, figure, unit)
        if baseline is None or _is_ours(peer)
        else Line(peer.title, figure, unit, baseline, target)
        for peer, figure in figures.items()
    ]


def _measured(rounds: Sequence[Figures], value: Value) -> list[float]:
    """Return the figures of all rounds, or nothing if one of them lacks it."""
    found = [figure for each in rounds if (figure := value(each)) is not None]
    return found if len(found) == len(rounds) else []


def _is_ours(peer: Peer) -> bool:
    return peer.name.startswith("logbroker")
