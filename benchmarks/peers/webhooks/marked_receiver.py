"""A receiver in a separate process that finds the events in any body by their marks.

Webhook systems wrap payloads differently, and put ids into headers of their own. So each event of
the driver has a mark in its payload, and the receiver records the marks of each POST.
"""

import asyncio
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver

_MARK: Final = re.compile(rb"mark-(\d{8})")


def mark(number: int) -> str:
    """Return the mark of an event."""
    return f"mark-{number:08d}"


def marks_in(body: bytes) -> list[int]:
    """Return the numbers of the events in a body, in order."""
    return [int(found) for found in _MARK.findall(body)]


class Arrival(NamedTuple):
    """An event that arrived: its number, and the time in seconds of the monotonic clock."""

    number: int
    at_s: float


class Arrivals(NamedTuple):
    """All events since the last reset, in order of arrival."""

    events: Sequence[Arrival]

    @property
    def first_s(self) -> dict[int, float]:
        """The first arrival of each event."""
        first: dict[int, float] = {}
        for number, at_s in self.events:
            first.setdefault(number, at_s)
        return first

    def first_of(self, numbers: range) -> dict[int, float]:
        """Return the first arrivals of these events alone."""
        return {number: at_s for number, at_s in self.first_s.items() if number in numbers}

    @property
    def repeated(self) -> int:
        """How many arrivals were not the first of their event."""
        return sum(Counter(number for number, _ in self.events).values()) - len(self.first_s)


class MarkedReceiver:
    """The client of the receiver's process."""

    def __init__(self, control: Connection) -> None:
        self._control = control
        self.port: int = control.recv()

    def answer(self, status: int) -> None:
        """Answer all following POSTs with a status, and forget what has arrived."""
        self._call("answer", status)

    def count(self) -> int:
        """Return the number of arrivals, repeated ones included."""
        count: int = self._call("count")
        return count

    def distinct(self, numbers: range) -> int:
        """Return how many of these events have arrived."""
        distinct: int = self._call("distinct", numbers)
        return distinct

    def arrivals(self) -> Arrivals:
        """Return the events that have arrived, and forget them."""
        arrivals: Arrivals = self._call("arrivals")
        return arrivals

    def _call(self, name: str, argument: int | range | None = None) -> Any:
        self._control.send((name, argument))
        return self._control.recv()


@contextmanager
def marked_receiver(address: str, port: int = 0) -> Iterator[MarkedReceiver]:
    """Run the receiver until the end of the block."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=_serve, args=(theirs, address, port), daemon=True)
    child.start()
    theirs.close()
    try:
        yield MarkedReceiver(ours)
    finally:
        ours.close()
        child.join()


def _serve(control: Connection, address: str, port: int) -> None:
    asyncio.run(_serve_until_stopped(control, address, port))


async def _serve_until_stopped(control: Connection, address: str, port: int) -> None:
    events: list[Arrival] = []

    def record(webhook: ReceivedWebhook) -> None:
        now_s = time.monotonic()
        events.extend(Arrival(number, now_s) for number in marks_in(webhook.body))

    receiver = WebhookReceiver(address, port, on_webhook=record)
    await receiver.start()
    control.send(receiver.port)
    while (call := await asyncio.to_thread(_next_call, control)) is not None:
        match call:
            case ("answer", status):
                receiver.answer(status)
                events.clear()
                control.send(None)
            case ("count", _):
                control.send(len(events))
            case ("distinct", numbers):
                control.send(len(Arrivals(events).first_of(numbers)))
            case ("arrivals", _):
                control.send(Arrivals(tuple(events)))
                events.clear()
    await receiver.stop()


def _next_call(control: Connection) -> tuple[str, Any] | None:
    try:
        call: tuple[str, Any] = control.recv()
    except EOFError:
        return None
    return call
