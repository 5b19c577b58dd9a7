"""The demo's platform: pushes account activity to developers and tells Rewind what it owes."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Final, Self

from app.cli.api_client import ApiClient
from app.replay.windows import format_time
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender

HOUR_MS: Final = 3_600_000
EVENTS_PER_REQUEST: Final = 2_000
IN_FLIGHT: Final = 32

TYPES: Final = ("follow.created", "tweet.created", "favorite.created", "direct_message.created")


class Developer:
    """One developer: a webhook, a receiver, what it is owed and what came."""

    def __init__(self) -> None:
        self.receiver = WebhookReceiver(on_webhook=self._record)
        self.webhook_id = ""
        self.secret = ""
        self.owed: list[str] = []
        self.received: list[str] = []

    def _record(self, webhook: ReceivedWebhook) -> None:
        if webhook.problem is None and not webhook.is_ping:
            self.received.append(webhook.event_id)


class AccountPlatform:
    """A platform whose users do things that many developers want to hear of.

    Every event is first put into Rewind's log as owed, then pushed once to its webhook; what a
    receiver that is down misses, the platform does not try again: that is what replays are for.
    An async context manager; on entry the webhooks are registered.
    """

    def __init__(self, client: ApiClient, webhooks: int) -> None:
        self.developers = [Developer() for _ in range(webhooks)]
        self._client = client
        self._sender = WebhookSender(Guard(allow_private=True))
        self._start_ms = int(time.time() * 1000) - HOUR_MS

    async def __aenter__(self) -> Self:
        """Start the receivers and register their webhooks, signing secrets included."""
        await self._sender.__aenter__()
        for number, developer in enumerate(self.developers):
            await developer.receiver.start()
            url = f"{developer.receiver.url}/hooks/{number}"
            webhook = await asyncio.to_thread(
                self._client.create_webhook, url, f"developer {number}"
            )
            developer.webhook_id = webhook["id"]
            developer.secret = developer.receiver.secret = webhook["secret"]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the sender and the receivers."""
        await self._sender.__aexit__(*_)
        for developer in self.developers:
            await developer.receiver.stop()

    def time_of(self, number: int, events: int) -> int:
        """The event time of one of `events` events that share an hour evenly; milliseconds."""
        return self._start_ms + number * HOUR_MS // events

    async def push(self, start: int, end: int, events: int) -> None:
        """Log and push the events numbered `[start, end)`, in order of their times."""
        for first in range(start, end, EVENTS_PER_REQUEST):
            numbers = range(first, min(first + EVENTS_PER_REQUEST, end))
            batch = [self._event(number, events) for number in numbers]
            lines = "\n".join(
                json.dumps(event | {"webhookId": developer.webhook_id})
                for developer, event in batch
            )
            await asyncio.to_thread(self._client.publish, lines.encode())
            await self._push_live(iter(batch))

    def _event(self, number: int, events: int) -> tuple[Developer, dict[str, object]]:
        """An event and whom it is owed to: the first developer gets a quarter of them all."""
        others = len(self.developers) - 1
        developer = self.developers[0 if number % 4 == 0 else 1 + number % others]
        return developer, {
            "id": f"evt_{number:06d}",
            "type": TYPES[number % len(TYPES)],
            "time": format_time(self.time_of(number, events)),
            "data": {"forUserId": str(2_244_994_945 + number % 977), "sequence": number},
        }

    async def _push_live(self, batch: Iterator[tuple[Developer, dict[str, object]]]) -> None:
        async def push_some() -> None:
            for developer, event in batch:
                await self._push_one(developer, event)

        async with asyncio.TaskGroup() as group:
            for _ in range(IN_FLIGHT):
                group.create_task(push_some())

    async def _push_one(self, developer: Developer, event: dict[str, object]) -> None:
        event_id = str(event["id"])
        body = json.dumps(event, separators=(",", ":")).encode()
        headers = webhook_headers([developer.secret], event_id, int(time.time()), body)
        developer.owed.append(event_id)
        await self._sender.send(f"{developer.receiver.url}/hooks", headers, body)
