"""A webhook receiver in a separate process that records which events arrive, and when."""

import asyncio
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver

HANG_S: Final = 3_600.0

DELAYS_MS: Final = (0, 20, 200)
"""The latencies of receivers that record events."""


class Report(NamedTuple):
    """The POSTs since the last report; times in seconds of the system's monotonic clock."""

    first_s: float
    last_s: float
    posts: int
    events: int
    event_ids: int
    """The number of distinct event ids."""
    first_events: int
    """The number of events in the first POST."""

    @property
    def events_per_s(self) -> float:
        """The rate between the first POST and the last."""
        return (self.events - self.first_events) / (self.last_s - self.first_s)


class TimingReceiver:
    """The client of the receiver's process.

    The receiver accepts and records events on every path of `url`, which is the first of
    `delayed_urls`, by their latency in ms. At `blind_url` it accepts them without a record, and at
    `hanging_url` it never responds.
    """

    def __init__(self, control: Connection) -> None:
        self._control = control
        self.blind_url: str
        self.hanging_url: str
        self.blind_url, self.hanging_url, *delayed = control.recv()
        self.delayed_urls: dict[int, str] = dict(zip(DELAYS_MS, delayed, strict=True))
        self.url = self.delayed_urls[0]

    @property
    def port(self) -> int:
        """The port of `url`."""
        return int(self.url.rpartition(":")[2])

    def count(self) -> int:
        """Return the number of POSTs since the last report."""
        self._control.send(_ReceivedPosts.count.__name__)
        count: int = self._control.recv()
        return count

    def report(self) -> Report:
        """Return and reset what was received since the last report."""
        self._control.send(_ReceivedPosts.report.__name__)
        report: Report = self._control.recv()
        return report

    def arrivals(self) -> dict[str, float]:
        """Return the first arrival of each event since the last report, and reset."""
        self._control.send(_ReceivedPosts.arrivals.__name__)
        arrivals: dict[str, float] = self._control.recv()
        return arrivals


@contextmanager
def timing_receiver() -> Iterator[TimingReceiver]:
    """Run the receiver until the end of the block."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    try:
        yield TimingReceiver(ours)
    finally:
        ours.close()
        child.join()


class _Post(NamedTuple):
    time_s: float
    message_id: str
    batch: bytes | None
    """The body if it contains several events; it is parsed when the ids are needed."""

    def event_ids(self) -> list[str]:
        if self.batch is None:
            return [self.message_id]
        return [event["id"] for event in json.loads(self.batch)]


class _ReceivedPosts:
    """The POSTs with events, in order of arrival."""

    def __init__(self) -> None:
        self._posts: list[_Post] = []

    def add(self, webhook: ReceivedWebhook) -> None:
        if _has_events(webhook):
            batch = webhook.body if "webhook-batch-size" in webhook.headers else None
            self._posts.append(_Post(time.monotonic(), webhook.event_id, batch))

    def count(self) -> int:
        return len(self._posts)

    def report(self) -> Report:
        posts = self._reset()
        if not posts:
            return Report(0.0, 0.0, 0, 0, 0, 0)
        event_ids = [event_id for post in posts for event_id in post.event_ids()]
        return Report(
            posts[0].time_s,
            posts[-1].time_s,
            len(posts),
            len(event_ids),
            len(set(event_ids)),
            len(posts[0].event_ids()),
        )

    def arrivals(self) -> dict[str, float]:
        first: dict[str, float] = {}
        for post in self._reset():
            for event_id in post.event_ids():
                first.setdefault(event_id, post.time_s)
        return first

    def _reset(self) -> list[_Post]:
        posts, self._posts = self._posts, []
        return posts


def _has_events(webhook: ReceivedWebhook) -> bool:
    """Return false for pings and notifications, whose ids start with the replay's id."""
    replay_id = webhook.replay_id
    is_notice = replay_id is not None and webhook.event_id.startswith(replay_id)
    return not is_notice and not webhook.is_ping


def _serve(control: Connection) -> None:
    asyncio.run(_serve_until_stopped(control))


async def _serve_until_stopped(control: Connection) -> None:
    posts = _ReceivedPosts()
    calls: Mapping[str, Callable[[], object]] = {
        each.__name__: each for each in (posts.count, posts.report, posts.arrivals)
    }
    delayed = [WebhookReceiver(on_webhook=posts.add) for _ in DELAYS_MS]
    for receiver, delay_ms in zip(delayed, DELAYS_MS, strict=True):
        receiver.answer(204, delay_s=delay_ms / 1_000)
    receivers = WebhookReceiver(), WebhookReceiver(), *delayed
    receivers[1].answer(204, delay_s=HANG_S)
    for receiver in receivers:
        await receiver.start()
    control.send([receiver.url for receiver in receivers])
    while (name := await asyncio.to_thread(_next_call, control)) is not None:
        control.send(calls[name]())
    for receiver in receivers:
        await receiver.stop()


def _next_call(control: Connection) -> str | None:
    try:
        name: str = control.recv()
    except EOFError:
        return None
    return name
