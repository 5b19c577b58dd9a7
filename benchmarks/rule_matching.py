"""Measures how long the live path takes to find the webhooks for an event, by the rules it has.

Rules of four kinds belong to different webhooks, and each event matches one of them. The baseline
has a hundred rules. In two cases one account adds the rules that cost most within its limits:
each set of paths is looked up, and no glob matches; or each pattern is compared with the event and
does not match. A new event type costs most, since all globs are compared with it; its time is CPU
time, which other load does not change.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, cycle, islice, product
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from app.domain.event_values import EventBody
from app.domain.match_index import MatchIndex
from app.domain.options import EVENT_TYPES_MAX
from app.domain.rules import (
    ALTERNATIVES_PER_ACCOUNT_MAX,
    CONDITIONS_MAX,
    GLOBS_PER_ACCOUNT_MAX,
    KINDS_PER_ACCOUNT_MAX,
    KINDS_PER_WEBHOOK_MAX,
    PATH_SETS_PER_ACCOUNT_MAX,
    PATTERNS_PER_ACCOUNT_MAX,
    Rule,
    Scalar,
    conditions_of,
)
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line, at_most, share_at_most

WORST: Final = "worst rules of one account"
WORST_PATTERNS: Final = "worst patterns of one account"
WEBHOOKS_OF_ACCOUNT: Final = 20
SLICE_EVENTS: Final = 200
SLICES: Final = 40
"""The fastest of several short slices is the one that other load on the machine disturbed least."""

NEW_TYPES: Final = 200

_SHARES: Final = {WORST_PATTERNS: 10.0}
"""The largest shares of the baseline, where they are not two."""


class Event(NamedTuple):
    """The type and the body of an event."""

    event_type: str
    body: bytes


class Match(NamedTuple):
    """One round of one case: us per event, and ms of the longest match of a new type."""

    match_us: float
    longest_ms: float


def measure(scale: Scale, _: Path) -> list[Line]:
    """Measure every case in each round."""
    events = list(islice(_events(), 32))
    cases = {_name(rules): index_of(_rules(rules)) for rules in scale.matched_rules}
    fewest = scale.matched_rules[0]
    cases[WORST] = index_of([*_rules(fewest), *worst_rules(events[0])])
    cases[WORST_PATTERNS] = index_of([*_rules(fewest), *worst_patterns()])
    for name, index in cases.items():
        for event in events:
            found = index.match(event.event_type, EventBody(event.body))
            assert len(found) == 1, (name, event, found)
    rounds = [_round(cases, events) for _ in range(scale.rounds)]
    return _lines(_name(fewest), cases, rounds)


def index_of(rules: Iterable[Rule]) -> MatchIndex:
    """Return an index of `rules`."""
    index = MatchIndex()
    for rule in rules:
        index.put(rule.webhook_id, rule)
    return index


def worst_rules(event: Event) -> Iterator[Rule]:
    """Yield the rules of one account that cost this event most, and that it does not match."""
    data = json.loads(event.body)["data"]
    scalars: dict[str, Scalar] = {f"data.{name}": value for name, value in data.items()}
    path_sets = list(combinations(scalars, CONDITIONS_MAX))[:PATH_SETS_PER_ACCOUNT_MAX]
    lists = [
        tuple(f"*{number}*?{each}" for each in range(EVENT_TYPES_MAX))
        for number in range(GLOBS_PER_ACCOUNT_MAX // EVENT_TYPES_MAX)
    ]
    kinds = Random(2011).sample(list(product(path_sets, lists)), KINDS_PER_ACCOUNT_MAX)
    for webhook in range(WEBHOOKS_OF_ACCOUNT):
        for number, (paths, globs) in enumerate(islice(cycle(kinds), KINDS_PER_WEBHOOK_MAX)):
            where = tuple((path, scalars[path]) for path in paths)
            yield Rule(f"wh_worst_{webhook}", f"rule{number}", globs, where)
        kinds = kinds[KINDS_PER_WEBHOOK_MAX:] + kinds[:KINDS_PER_WEBHOOK_MAX]


def worst_patterns() -> Iterator[Rule]:
    """Yield the rules of one account whose patterns cost every event most; none matches."""
    alternatives = ALTERNATIVES_PER_ACCOUNT_MAX // PATTERNS_PER_ACCOUNT_MAX
    others = ("data.flag0", "data.flag1", "data.flag2", "data.flag3")[: min(4, alternatives - 1)]
    for number in range(PATTERNS_PER_ACCOUNT_MAX):
        wildcards = [
            {"wildcard": f"*x*{number}.{each}*"} for each in range(alternatives - len(others))
        ]
        where = {path: [{"exists": True}] for path in others} | {"data.text": wildcards}
        webhook = number % WEBHOOKS_OF_ACCOUNT
        yield Rule(f"wh_patterns_{webhook}", f"rule{number}", ("*",), conditions_of(where))


def _rules(count: int) -> Iterator[Rule]:
    """Yield rules of four kinds in turn, of different webhooks."""
    for number in range(count):
        webhook_id, user = f"wh_{number:09d}", str(number // 4)
        globs, where = (
            ((f"shop{user}.*",), ()),
            (("follow.*", "dm.*"), (("data.userId", user),)),
            (("*",), (("data.userId", user), ("data.language", "none"))),
            (("order.created",), (("data.shop", number // 4),)),
        )[number % 4]
        yield Rule(webhook_id, "default", globs, where)


def _events() -> Iterator[Event]:
    """Yield events that each match one of the first hundred rules."""
    for number in cycle(range(25)):
        kinds = (
            (f"shop{number}.opened", "none", -1),
            ("follow.created", str(number), -1),
            ("order.created", "none", number),
        )
        event_type, user, shop = kinds[number % 3]
        data = {"userId": user, "shop": shop, "language": "en", "count": 1}
        data |= {f"flag{each}": True for each in range(4)} | {"text": "x" * 80}
        event = {"id": f"evt_{number:010d}", "type": event_type, "data": data}
        yield Event(event_type, json.dumps(event).encode())


def _round(cases: Mapping[str, MatchIndex], events: Sequence[Event]) -> dict[str, Match]:
    slices = [{name: _slice(index, events) for name, index in cases.items()} for _ in range(SLICES)]
    return {
        name: Match(min(each[name] for each in slices), _longest(index, events[0]))
        for name, index in cases.items()
    }


def _slice(index: MatchIndex, events: Sequence[Event]) -> float:
    """Return the microseconds per event of one slice."""
    start_s = time.perf_counter()
    for event_type, body in islice(cycle(events), SLICE_EVENTS):
        index.match(event_type, EventBody(body))
    return (time.perf_counter() - start_s) * 1e6 / SLICE_EVENTS


def _longest(index: MatchIndex, event: Event) -> float:
    """Return the CPU milliseconds of the longest match of an event of a new type."""
    longest_s = 0.0
    for number in range(NEW_TYPES):
        event_type = f"{time.monotonic_ns()}.new{number}"
        start_s = time.thread_time()
        index.match(event_type, EventBody(event.body))
        longest_s = max(longest_s, time.thread_time() - start_s)
    return longest_s * 1e3


def _lines(fewest: str, cases: Iterable[str], rounds: Sequence[dict[str, Match]]) -> list[Line]:
    base = Baseline(fewest, median(each[fewest].match_us for each in rounds))
    lines = []
    for name in cases:
        match_us = median(each[name].match_us for each in rounds)
        longest_ms = median(each[name].longest_ms for each in rounds)
        is_base = name == fewest
        lines += [
            Line(
                name,
                match_us,
                "us/event",
                None if is_base else base,
                None if is_base else share_at_most(_SHARES.get(name, 2.0)),
            ),
            Line("  longest, of a new event type", longest_ms, "ms", target=at_most(10)),
        ]
    return lines


def _name(rules: int) -> str:
    return f"{rules:,} rules"
