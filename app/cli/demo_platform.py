"""The demo's platform and its developers: who wants what, and what happened."""

import asyncio
import json
import time
from typing import Final, Self

from app.cli.api_client import ApiClient
from app.cli.live_watch import LiveWatch
from app.domain.windows import format_time
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.signing import new_secret

HOUR_MS: Final = 3_600_000
EVENTS_PER_REQUEST: Final = 2_000

AHEAD_MAX: Final = 4_000
"""Events that the platform publishes before what it published is settled: an hour has its pace."""

WAITING_MAX: Final = AHEAD_MAX + EVENTS_PER_REQUEST
"""Events that can be waiting for their receivers at a time."""

TYPES: Final = ("follow.created", "tweet.created", "favorite.created", "direct_message.created")
_FIRST_USER: Final = 2_244_994_945

_OUR_TYPES: Final = ("webhook.", "replay.")
"""How the types begin of what Rewind itself has to say to a webhook."""


class Developer:
    """One developer: a webhook, a receiver, what it is owed and what came.

    Everything that comes is checked against the secret, also the proof at the registration.
    """

    def __init__(self, number: int) -> None:
        self.user_id = str(_FIRST_USER + number)
        self.receiver = WebhookReceiver(secret=new_secret(), on_webhook=self._record)
        self.webhook_id = ""
        self.owed: list[str] = []
        self.received: list[str] = []

    def _record(self, webhook: ReceivedWebhook) -> None:
        if webhook.problem is None and not _is_ours(webhook.body):
            self.received.append(webhook.event_id)


class AccountPlatform:
    """A platform whose users do things that many developers want to hear of.

    It only says what happened. Whose events are whose, Rewind knows from each webhook's rule.
    An async context manager; on entry the webhooks are registered.
    """

    def __init__(self, client: ApiClient, webhooks: int, live: LiveWatch) -> None:
        self.developers = [Developer(number) for number in range(webhooks)]
        self._client = client
        self._live = live
        self._published = 0
        self._start_ms = int(time.time() * 1000) - HOUR_MS

    async def __aenter__(self) -> Self:
        """Start the receivers, register their webhooks, and say what each wants."""
        for number, developer in enumerate(self.developers):
            await developer.receiver.start()
            # The proof of ownership comes to the receiver, which lives on this loop.
            await asyncio.to_thread(self._register, developer, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the receivers."""
        for developer in self.developers:
            await developer.receiver.stop()

    def time_of(self, number: int, events: int) -> int:
        """The event time of one of `events` events that share an hour evenly; milliseconds."""
        return self._start_ms + number * HOUR_MS // events

    async def publish(self, start: int, end: int, events: int) -> None:
        """Publish the events numbered `[start, end)`, in order of their times.

        When this returns, each is delivered, or left to a replay.
        """
        for first in range(start, end, EVENTS_PER_REQUEST):
            numbers = range(first, min(first + EVENTS_PER_REQUEST, end))
            lines = "\n".join(json.dumps(self._event(number, events)) for number in numbers)
            self._published += await asyncio.to_thread(self._client.publish, lines.encode())
            await self._live.until_settled(self._published - AHEAD_MAX)
        await self._live.until_settled(self._published)

    def _register(self, developer: Developer, number: int) -> None:
        url = f"{developer.receiver.url}/hooks/{number}"
        secret = developer.receiver.secret
        assert secret is not None
        webhook = self._client.create_webhook(url, f"developer {number}", secret)
        developer.webhook_id = webhook["id"]
        rule = {"eventTypes": ["*"], "where": {"data.forUserId": developer.user_id}}
        self._client.put_rule(developer.webhook_id, "my-user", rule)

    def _event(self, number: int, events: int) -> dict[str, object]:
        """An event of one developer's user: the first developer gets a quarter of them all."""
        others = len(self.developers) - 1
        developer = self.developers[0 if number % 4 == 0 else 1 + number % others]
        event_id = f"evt_{number:06d}"
        developer.owed.append(event_id)
        return {
            "id": event_id,
            "type": TYPES[number % len(TYPES)],
            "time": format_time(self.time_of(number, events)),
            "data": {"forUserId": developer.user_id, "sequence": number},
        }


def _is_ours(body: bytes) -> bool:
    return str(json.loads(body)["type"]).startswith(_OUR_TYPES)
