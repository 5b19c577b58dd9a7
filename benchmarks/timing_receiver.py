"""A webhook receiver in a process of its own that notes when events came, and which."""

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


class Report(NamedTuple):
    """What came since the last report; times by the system's monotonic clock, in seconds."""

    first_s: float
    last_s: float
    posts: int
    events: int
    event_ids: int
    """How many different ones."""
    first_events: int
    """Events of the first POST."""

    @property
    def events_per_s(self) -> float:
        """The rate between the first POST and the last."""
        return (self.events - self.first_events) / (self.last_s - self.first_s)


class TimingReceiver:
    """The owner's end of the other process.

    Events are taken on every path of `url`; at `blind_url` they are taken and not noted, and at
    `hanging_url` never answered.
    """

    def __init__(self, control: Connection) -> None:
        self._control = control
        self.url: str
        self.blind_url: str
        self.hanging_url: str
        self.url, self.blind_url, self.hanging_url = control.recv()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def count(self) -> int:
        """How many POSTs came since the last report."""
        self._control.send(_Notes.count.__name__)
        count: int = self._control.recv()
        return count

    def report(self) -> Report:
        """What came since the last report."""
        self._control.send(_Notes.report.__name__)
        report: Report = self._control.recv()
        return report

    def arrivals(self) -> dict[str, float]:
        """When each event came first since the last report, which this is one as well."""
        self._control.send(_Notes.arrivals.__name__)
        arrivals: dict[str, float] = self._control.recv()
        return arrivals


@contextmanager
def timing_receiver() -> Iterator[TimingReceiver]:
    """The receiver, gone at the end."""
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
    """The body, where it holds several events; read only once it is asked for."""

    def event_ids(self) -> list[str]:
        if self.batch is None:
            return [self.message_id]
        return [event["id"] for event in json.loads(self.batch)]


class _Notes:
    """The POSTs that brought events."""

    def __init__(self) -> None:
        self._posts: list[_Post] = []

    def add(self, webhook: ReceivedWebhook) -> None:
        if _brings_events(webhook):
            batch = webhook.body if "webhook-batch-size" in webhook.headers else None
            self._posts.append(_Post(time.monotonic(), webhook.event_id, batch))

    def count(self) -> int:
        return len(self._posts)

    def report(self) -> Report:
        posts = self._take()
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
        for post in self._take():
            for event_id in post.event_ids():
                first.setdefault(event_id, post.time_s)
        return first

    def _take(self) -> list[_Post]:
        posts, self._posts = self._posts, []
        return posts


def _brings_events(webhook: ReceivedWebhook) -> bool:
    """Not so a ping, nor the notice of a replay's end, which is named for the replay."""
    replay_id = webhook.replay_id
    is_notice = replay_id is not None and webhook.event_id.startswith(replay_id)
    return not is_notice and not webhook.is_ping


def _serve(control: Connection) -> None:
    asyncio.run(_serve_until_told(control))


async def _serve_until_told(control: Connection) -> None:
    notes = _Notes()
    answers: Mapping[str, Callable[[], object]] = {
        each.__name__: each for each in (notes.count, notes.report, notes.arrivals)
    }
    receivers = WebhookReceiver(on_webhook=notes.add), WebhookReceiver(), WebhookReceiver()
    receivers[2].answer(204, delay_s=HANG_S)
    for receiver in receivers:
        await receiver.start()
    control.send([receiver.url for receiver in receivers])
    while (question := await asyncio.to_thread(_next_question, control)) is not None:
        control.send(answers[question]())
    for receiver in receivers:
        await receiver.stop()


def _next_question(control: Connection) -> str | None:
    try:
        question: str = control.recv()
    except EOFError:
        return None
    return question
