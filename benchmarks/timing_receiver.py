"""A webhook receiver in a process of its own that notes when events came, and which."""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver

REPORT: Final = "report"


class Report(NamedTuple):
    """What came since the last report; times by the system's monotonic clock, in seconds."""

    first_s: float
    last_s: float
    posts: int
    event_ids: int
    """How many different ones."""

    @property
    def events_per_s(self) -> float:
        """The rate between the first event and the last."""
        return (self.posts - 1) / (self.last_s - self.first_s)


class TimingReceiver:
    """The owner's end of the other process."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self.url: str = control.recv()

    def report(self) -> Report:
        """What came since the last report."""
        self._control.send(REPORT)
        report: Report = self._control.recv()
        return report


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


class _Notes:
    """Times and event ids of what came."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._event_ids: list[str] = []

    def add(self, webhook: ReceivedWebhook) -> None:
        self._times_s.append(time.monotonic())
        self._event_ids.append(webhook.event_id)

    def take(self) -> Report:
        times_s, event_ids = self._times_s, self._event_ids
        self._times_s, self._event_ids = [], []
        if not times_s:
            return Report(0.0, 0.0, 0, 0)
        return Report(times_s[0], times_s[-1], len(times_s), len(set(event_ids)))


def _serve(control: Connection) -> None:
    asyncio.run(_serve_until_told(control))


async def _serve_until_told(control: Connection) -> None:
    notes = _Notes()
    receiver = WebhookReceiver(on_webhook=notes.add)
    await receiver.start()
    control.send(receiver.url)
    while await asyncio.to_thread(_is_asked, control):
        control.send(notes.take())
    await receiver.stop()


def _is_asked(control: Connection) -> bool:
    try:
        return bool(control.recv() == REPORT)
    except EOFError:
        return False
