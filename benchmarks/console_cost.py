"""What the console asks of the API's process: its first page, and pages that stay open.

The service stands on MariaDB with ten thousand replays, of which one runs and changes each second.
A page's time is that of a request over a kept connection, until the last byte of the answer; one
replay by the API stands beside it. Pages that stay open are streams of one first page each, kept by
a plain client; what they cost is what the API's process used more than in as many seconds before,
while the same replay ran and nobody looked.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, insert, select

from app.domain.accounts import DEFAULT_ACCOUNT_NAME, Scope
from app.domain.model import NewReplay, Replay
from app.domain.options import ReplayOptions
from app.domain.states import ReplayState
from app.store.engine import Database
from app.store.tables import replays
from benchmarks.console_client import PageReader, get, open_pages, sign_in
from benchmarks.delivery_history import History
from benchmarks.http_load import HttpRequest, ask_for, encode
from benchmarks.mariadb_server import mariadb_server
from benchmarks.running_broker import cpu_s, until
from benchmarks.running_process import RunningProcess
from benchmarks.scale import Scale, median
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line, at_most
from benchmarks.timing_receiver import timing_receiver

FIRST_PAGE: Final = "/console/jobs"
JOBS: Final = 10_000
MINUTE_MS: Final = 60_000
EVERY: Final[Mapping[int, ReplayState]] = {
    20: ReplayState.FAILED,
    33: ReplayState.CANCELLED,
}
"""Every so many-th job ended so; the others are COMPLETED."""

CONSOLES: Final = 50
COOKIES: Final = 5
"""Keys of those who look: each may keep twenty pages live."""

EVENTS_PER_SECOND: Final = 100
RUNS_S: Final = 300
"""So long the replay would run: longer than anybody watches it."""

WATCHED: Final = 3
"""So many times as long as others run: processor time is counted in hundredths of a second."""

PLENTY: Final = "1000000"
"""Requests that a key is allowed in a minute, so that none is refused."""

PAGE_KB_MAX: Final = 100
PAGE_MS_MAX: Final = 20
CONSOLES_PERCENT_MAX: Final = 5


class Bench(NamedTuple):
    """All that is measured stands here; `cookies` are of people who are signed in.

    `lookup` asks the API for the replay that runs.
    """

    api: RunningProcess
    cookies: list[str]
    lookup: HttpRequest


class Loaded(NamedTuple):
    """Milliseconds of one answer: until it is there, and of the process's processor time."""

    whole: float
    cpu: float


class Watched(NamedTuple):
    """Percent of a core that the API's process used, alone and with pages open."""

    alone: float
    with_pages: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """The first page, then open pages, in each round."""
    with _bench(folder) as bench:
        request = encode("GET", FIRST_PAGE, cookie=bench.cookies[0], status=200)
        # Templates are compiled when they are first used.
        ask_for(bench.api.address, request, 1, 0)
        lookups: list[Loaded] = []
        pages: list[Loaded] = []
        watched: list[Watched] = []
        for _ in range(scale.rounds):
            lookups.append(_load(bench.api, bench.lookup, scale.webhook_s))
            pages.append(_load(bench.api, request, scale.webhook_s))
            watched.append(asyncio.run(_watch(bench, WATCHED * scale.live_s)))
        page, whole = _page_bytes(bench)
        return list(_lines(lookups, pages, page, whole, watched))


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    database = folder / "console-mariadb"
    database.mkdir()
    with (
        mariadb_server(database) as url,
        timing_receiver() as receiver,
        service_stage(folder, database=url, operator_requests_per_minute=PLENTY) as stage,
        stage.process("api") as api,
    ):
        replay = _running_replay(stage, receiver.blind_url)
        _finish_others(url, replay, JOBS - 1)
        keys = [
            stage.store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, "bench")[1]
            for _ in range(COOKIES)
        ]
        with stage.process("worker"):
            until(lambda: stage.store.replay(replay.id).counts.delivered > 0, "the replay runs")
            lookup = encode("GET", f"/replays/{replay.id}", key=keys[0], status=200)
            yield Bench(api, [sign_in(api.address, key) for key in keys], lookup)


def _running_replay(stage: ServiceStage, url: str) -> Replay:
    """A replay that a worker will not be done with while anybody measures."""
    webhook = stage.enabled_webhook(url)
    events = EVENTS_PER_SECOND * RUNS_S
    history = History.of(webhook.id, stage.settings.partitions, 3 * events, events)
    stage.load(history)
    options = ReplayOptions(max_events_per_second=EVENTS_PER_SECOND)
    window = history.window_of(events)
    return stage.create_replay(NewReplay(webhook.id, window, options, origin=stage.settings.origin))


def _finish_others(url: str, like: Replay, count: int) -> None:
    """Store replays that ended before, one each minute."""
    with closing(Database(url)) as database:
        database.write(lambda db: _copy(db, like, count))


def _copy(db: Connection, like: Replay, count: int) -> None:
    row = dict(db.execute(select(replays).where(replays.c.id == like.id)).mappings().one())
    db.execute(insert(replays), [_finished(row, number) for number in range(1, count + 1)])


def _finished(row: dict[str, Any], number: int) -> dict[str, Any]:
    created_ms = row["created_ms"] - number * MINUTE_MS
    state = next(
        (state for every, state in EVERY.items() if number % every == 0), ReplayState.COMPLETED
    )
    return row | {
        "id": f"rpl_bench{number:017d}",
        "active_webhook_id": None,
        "claimable_ms": None,
        "state": str(state),
        "worker": "bench-1",
        "lease_epoch": 1,
        "log_partition": 3,
        "start_offset": number * 10_000,
        "checkpoint_offset": (number + 1) * 10_000,
        "end_offset": (number + 1) * 10_000,
        "delivered": 3_333,
        "failed": number % 7,
        "created_ms": created_ms,
        "started_ms": created_ms + 200,
        "heartbeat_ms": created_ms + 40_000,
        "finished_ms": created_ms + 40_000,
    }


def _load(api: RunningProcess, request: HttpRequest, seconds: float) -> Loaded:
    """Ask for the same again and again, on one connection."""
    before_s = cpu_s(api.process)
    load = ask_for(api.address, request, 1, seconds)
    return Loaded(1e3 / load.per_s, 1e3 * (cpu_s(api.process) - before_s) / load.answers)


def _page_bytes(bench: Bench) -> tuple[int, int]:
    """The page alone, and with all that a browser loads for it the first time."""
    cookie = bench.cookies[0]
    page = get(bench.api.address, FIRST_PAGE, cookie)
    rest = PageReader(page.decode()).loads
    return len(page), len(page) + sum(len(get(bench.api.address, each, cookie)) for each in rest)


async def _watch(bench: Bench, seconds: float) -> Watched:
    address = bench.api.address
    alone = await _percent(bench.api, seconds)
    page = PageReader(get(address, FIRST_PAGE, bench.cookies[0]).decode())
    async with open_pages(address, page.stream, bench.cookies, CONSOLES) as pages:
        with_pages = await _percent(bench.api, seconds)
        told = [each.changes for each in pages]
    # The replay moves on each second, and a look comes each second: one may be missed.
    assert min(told) >= seconds - 2, f"pages were told {told} changes in {seconds} s"
    return Watched(alone, with_pages)


async def _percent(api: RunningProcess, seconds: float) -> float:
    """Percent of a core that the process uses from now on, for so long."""
    start_s, before_s = time.perf_counter(), cpu_s(api.process)
    await asyncio.sleep(seconds)
    return 100 * (cpu_s(api.process) - before_s) / (time.perf_counter() - start_s)


def _lines(
    lookups: list[Loaded], pages: list[Loaded], page: int, whole: int, watched: list[Watched]
) -> Iterator[Line]:
    name = "GET /replays/{id}"
    lookup_ms, lookup_cpu_ms = (median(each) for each in zip(*lookups, strict=True))
    page_ms, page_cpu_ms = (median(each) for each in zip(*pages, strict=True))
    yield Line(f"{name}, with a key", lookup_ms, "ms")
    yield Line("  API CPU", lookup_cpu_ms, "ms")
    yield Line(
        f"first page, {JOBS:,} jobs", page_ms, "ms", Baseline(name, lookup_ms), at_most(PAGE_MS_MAX)
    )
    yield Line("  API CPU", page_cpu_ms, "ms", Baseline(name, lookup_cpu_ms))
    yield Line("  the page", page / 1e3, "KB")
    yield Line("  with all that it loads", whole / 1e3, "KB", target=at_most(PAGE_KB_MAX))
    alone = median(each.alone for each in watched)
    with_pages = median(each.with_pages for each in watched)
    more = median(each.with_pages - each.alone for each in watched)
    # No ratio: the process alone may use less than the kernel counts.
    yield Line("API, nobody looks", alone, "% of core")
    yield Line(f"API, {CONSOLES} open pages", with_pages, "% of core")
    yield Line("  the pages alone", more, "% of core", target=at_most(CONSOLES_PERCENT_MAX))
