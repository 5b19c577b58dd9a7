"""The baseline of the live path: a stock consumer whose events are POSTed in order of arrival.

It has no rules, no delivery log and no outcomes, and it commits no position. It uses the service's
sender with the same number of requests in flight, so the difference is the cost of the rest.
"""

import asyncio
import threading
import time
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from app.domain.delivery import Delivered
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from benchmarks.bare_loop import running_loop

CONSUMED_AT_ONCE: Final = 500
WAIT_S: Final = 0.02
QUEUE_MAX: Final = 1_000


class Task(NamedTuple):
    """What the loop reads, and where it sends it."""

    bootstrap_servers: str
    topic: str
    partitions: int
    url: str
    in_flight: int


def bare_live(task: Task) -> AbstractContextManager[int]:
    """Run the loop in a separate process, from the start of the topic; yields its pid."""
    return running_loop(_serve, task)


def _serve(control: Connection, task: Task) -> None:
    asyncio.run(_run(control, task))


async def _run(control: Connection, task: Task) -> None:
    queue: asyncio.Queue[Message] = asyncio.Queue(QUEUE_MAX)
    reader = threading.Thread(
        target=_read, args=(task, queue, asyncio.get_running_loop()), daemon=True
    )
    reader.start()
    limits = SenderLimits(connections_per_target=task.in_flight)
    async with (
        WebhookSender(Guard(allow_private=True), limits) as sender,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(task.in_flight):
            group.create_task(_send(sender, task.url, queue))
        control.send(None)


def _read(task: Task, queue: "asyncio.Queue[Message]", loop: asyncio.AbstractEventLoop) -> None:
    settings = {
        "bootstrap.servers": task.bootstrap_servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 10,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.assign(
        [TopicPartition(task.topic, each, OFFSET_BEGINNING) for each in range(task.partitions)]
    )
    while True:
        first = consumer.poll(WAIT_S)
        if first is not None:
            messages = [first, *consumer.consume(CONSUMED_AT_ONCE - 1, 0)]
            asyncio.run_coroutine_threadsafe(_enqueue(messages, queue), loop).result()


async def _enqueue(messages: list[Message], queue: "asyncio.Queue[Message]") -> None:
    for message in messages:
        await queue.put(message)


async def _send(sender: WebhookSender, url: str, queue: "asyncio.Queue[Message]") -> None:
    secret = new_secret()
    while True:
        message = await queue.get()
        event_id, body = dict(message.headers() or ())["event-id"], message.value()
        assert isinstance(event_id, bytes)
        assert isinstance(body, bytes)
        headers = webhook_headers([secret], event_id.decode(), int(time.time()), body)
        outcome = await sender.send(url, headers, body)
        assert isinstance(outcome, Delivered), outcome
