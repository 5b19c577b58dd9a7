"""Measures the console: time and size of its first page, and the CPU of the API for open pages.

The service runs on MariaDB with ten thousand replays, of which one runs and changes every second.
The time of a page, in ms, runs from a request on a persistent connection to the last byte of the
response; its baseline is the request for one replay by the API. Open pages are event streams of the
first page, held by a plain client. Their cost, in percent of a core, is the CPU of the API's
process minus its CPU in the same number of seconds before, with the same replay and no open pages.
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
from app.store.tables import replays, written_columns
from benchmarks.console_client import PageReader, get, open_pages, sign_in
from benchmarks.delivery_history import History
from benchmarks.http_load import HttpRequest, encode, send_repeatedly
from benchmarks.mariadb_server import mariadb_server
from benchmarks.running_broker import cpu_s, until
from benchmarks.running_process import RunningProcess
from benchmarks.scale import Scale, median
from benchmarks.service_stage import UNLIMITED, ServiceStage, service_stage
from benchmarks.table import Baseline, Line, at_most
from benchmarks.timing_receiver import timing_receiver

FIRST_PAGE: Final = "/console/jobs"
JOBS: Final = 10_000
MINUTE_MS: Final = 60_000
STATE_EVERY: Final[Mapping[int, ReplayState]] = {
    20: ReplayState.FAILED,
    33: ReplayState.CANCELLED,
}
"""Each replay whose number is a multiple of the key has this state; the others are COMPLETED."""

CONSOLES: Final = 50
COOKIES: Final = 5
"""The number of keys that open pages; each key may keep twenty pages live."""

EVENTS_PER_SECOND: Final = 100
RUNS_S: Final = 300
"""The duration of the replay: longer than the measurement."""

WATCHED: Final = 3
"""Open pages are measured longer by this factor: CPU time is counted in units of 10 ms."""

"""Requests per minute of a key: high enough that no request is rejected."""

PAGE_KB_MAX: Final = 100
PAGE_MS_MAX: Final = 20
CONSOLES_PERCENT_MAX: Final = 5


class Bench(NamedTuple):
    """The running API, the cookies of signed-in sessions, and the request for one replay."""

    api: RunningProcess
    cookies: list[str]
    lookup: HttpRequest


class Loaded(NamedTuple):
    """Milliseconds per response: until its last byte, and of the process's CPU."""

    whole: float
    cpu: float


class Watched(NamedTuple):
    """CPU of the API's process in percent of a core, without and with open pages."""

    alone: float
    with_pages: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure the first page, then open pages, in each round."""
    with _bench(folder) as bench:
        request = encode("GET", FIRST_PAGE, cookie=bench.cookies[0], status=200)
        # Templates are compiled when they are first used.
        send_repeatedly(bench.api.address, request, 1, 0)
        lookups: list[Loaded] = []
        pages: list[Loaded] = []
        watched: list[Watched] = []
        for _ in range(scale.rounds):
            lookups.append(_load(bench.api, bench.lookup, scale.webhook_s))
            pages.append(_load(bench.api, request, scale.webhook_s))
            watched.append(asyncio.run(_measure_open_pages(bench, WATCHED * scale.live_s)))
        page, whole = _page_bytes(bench)
        return list(_lines(lookups, pages, page, whole, watched))


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    database = folder / "console-mariadb"
    database.mkdir()
    with (
        mariadb_server(database) as url,
        timing_receiver() as receiver,
        service_stage(folder, database=url, **UNLIMITED) as stage,
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
    """Create a replay that outlasts the measurement."""
    webhook = stage.enabled_webhook(url)
    events = EVENTS_PER_SECOND * RUNS_S
    history = History.until_now(webhook.id, stage.settings.partitions, 3 * events, events)
    stage.load(history)
    options = ReplayOptions(max_events_per_second=EVENTS_PER_SECOND)
    window = history.window_of(events)
    return stage.create_replay(NewReplay(webhook.id, window, options, origin=stage.settings.origin))


def _finish_others(url: str, like: Replay, count: int) -> None:
    """Store replays that have ended, one for each minute before."""
    with closing(Database(url)) as database:
        database.write(lambda db: _copy(db, like, count))


def _copy(db: Connection, like: Replay, count: int) -> None:
    row = dict(
        db.execute(select(*written_columns()).where(replays.c.id == like.id)).mappings().one()
    )
    db.execute(insert(replays), [_finished(row, number) for number in range(1, count + 1)])


def _finished(row: dict[str, Any], number: int) -> dict[str, Any]:
    created_ms = row["created_ms"] - number * MINUTE_MS
    state = next(
        (state for every, state in STATE_EVERY.items() if number % every == 0),
        ReplayState.COMPLETED,
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
    """Measure one request, sent repeatedly on one connection."""
    before_s = cpu_s(api.process)
    load = send_repeatedly(api.address, request, 1, seconds)
    return Loaded(1e3 / load.per_s, 1e3 * (cpu_s(api.process) - before_s) / load.responses)


def _page_bytes(bench: Bench) -> tuple[int, int]:
    """Return the size of the page alone, and with the resources that a browser loads once."""
    cookie = bench.cookies[0]
    page = get(bench.api.address, FIRST_PAGE, cookie)
    rest = PageReader(page.decode()).loads
    return len(page), len(page) + sum(len(get(bench.api.address, each, cookie)) for each in rest)


async def _measure_open_pages(bench: Bench, seconds: float) -> Watched:
    address = bench.api.address
    alone = await _measure_cpu(bench.api, seconds)
    page = PageReader(get(address, FIRST_PAGE, bench.cookies[0]).decode())
    async with open_pages(address, page.stream, bench.cookies, CONSOLES) as pages:
        with_pages = await _measure_cpu(bench.api, seconds)
        changes = [each.changes for each in pages]
    # The replay changes every second and is polled every second: one change may be missed.
    assert min(changes) >= seconds - 2, f"pages received {changes} changes in {seconds} s"
    return Watched(alone, with_pages)


async def _measure_cpu(api: RunningProcess, seconds: float) -> float:
    """Return the CPU of the process over the next `seconds`, in percent of a core."""
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
    yield Line("  size of the page", page / 1e3, "KB")
    yield Line("  page with its resources", whole / 1e3, "KB", target=at_most(PAGE_KB_MAX))
    alone = median(each.alone for each in watched)
    with_pages = median(each.with_pages for each in watched)
    more = median(each.with_pages - each.alone for each in watched)
    # No ratio: the process alone may use less than the kernel counts.
    yield Line("API, no open pages", alone, "% of core")
    yield Line(f"API, {CONSOLES} open pages", with_pages, "% of core")
    yield Line("  the open pages alone", more, "% of core", target=at_most(CONSOLES_PERCENT_MAX))
