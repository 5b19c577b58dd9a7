"""The receiver in another process records POSTs with events, and no others."""

import asyncio
import json
import time

from app.domain.delivery import AttemptOutcome, Delivered
from app.webhooks.guard import Guard
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from benchmarks.timing_receiver import timing_receiver

SECRET = new_secret()
REPLAY = "rpl_1"


def post(url: str, message_id: str, body: bytes, extra: dict[str, str]) -> None:
    async def send() -> AttemptOutcome:
        headers = webhook_headers([SECRET], message_id, int(time.time()), body, REPLAY, extra=extra)
        async with WebhookSender(Guard(allow_private=True)) as sender:
            return await sender.send(url, headers, body)

    assert isinstance(asyncio.run(send()), Delivered)


def test_events_are_counted_alone_and_in_batches_with_duplicates() -> None:
    batch = json.dumps([{"id": "evt_2"}, {"id": "evt_3"}, {"id": "evt_1"}]).encode()
    with timing_receiver() as receiver:
        before_s = time.monotonic()
        post(receiver.url, "evt_1", b"{}", {})
        post(receiver.url, "batch_1", batch, {"webhook-batch-size": "3"})
        assert receiver.count() == 2
        report = receiver.report()
        assert (report.posts, report.events, report.event_ids) == (2, 4, 3)
        assert before_s < report.first_s < report.last_s < time.monotonic()
        assert report.events_per_s == 3 / (report.last_s - report.first_s)
        assert receiver.count() == 0


def test_the_arrival_of_an_event_is_its_first_one() -> None:
    with timing_receiver() as receiver:
        post(receiver.url, "evt_1", b"{}", {})
        between_s = time.monotonic()
        post(receiver.url, "evt_1", b"{}", {})
        post(receiver.url, "evt_2", b"{}", {})
        arrivals = receiver.arrivals()
    assert arrivals.keys() == {"evt_1", "evt_2"}
    assert arrivals["evt_1"] < between_s < arrivals["evt_2"]


def test_notifications_and_posts_to_the_blind_url_are_not_recorded() -> None:
    with timing_receiver() as receiver:
        post(receiver.url, f"{REPLAY}-completed", b'{"type":"replay.completed"}', {})
        post(receiver.blind_url, "evt_1", b"{}", {})
        report = receiver.report()
    assert (report.posts, report.events, report.event_ids) == (0, 0, 0)
