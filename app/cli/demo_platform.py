"""The demo's platform, which publishes events, and its developers, whose webhooks receive them."""

import asyncio
import json
import socket
import time
from typing import Final, Self

import httpx

from app.cli.api_client import ApiClient
from app.domain.windows import format_time
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.signing import new_secret

HOUR_MS: Final = 3_600_000
EVENTS_PER_REQUEST: Final = 2_000

UNSETTLED_MAX: Final = 4_000
"""Events published ahead of their live deliveries, so that backpressure limits the rate."""

QUEUED_MAX: Final = UNSETTLED_MAX + EVENTS_PER_REQUEST
"""The maximum of events in the delivery queues."""

TYPES: Final = ("follow.created", "tweet.created", "favorite.created", "direct_message.created")
_FIRST_USER: Final = 2_244_994_945

_REWIND_TYPES: Final = ("webhook.", "replay.")
"""Prefixes of the types of Rewind's own events."""

_SETTLED_METRIC: Final = "rewind_live_settled_events_total{"
_POLL_S: Final = 0.05


def free_port() -> int:
    """Return a free TCP port of this machine."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class LiveProgress:
    """Polls the metrics of the live process at `port`."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def wait_until_settled(self, events: int) -> None:
        """Return once this many events are delivered, failed or skipped."""
        async with httpx.AsyncClient(verify=False) as client:  # noqa: S501  no TLS
            while await self._settled(client) < events:  # noqa: ASYNC110  another process
                await asyncio.sleep(_POLL_S)

    async def _settled(self, client: httpx.AsyncClient) -> float:
        lines = (await client.get(self._url)).text.splitlines()
        settled = (line for line in lines if line.startswith(_SETTLED_METRIC))
        return sum(float(line.rpartition(" ")[2]) for line in settled)


class Developer:
    """A developer: a webhook with its receiver, and the ids of expected and received events.

    Signatures of all requests are verified, including the verification ping.
    """

    def __init__(self, number: int) -> None:
        self.user_id = str(_FIRST_USER + number)
        self.receiver = WebhookReceiver(secret=new_secret(), on_webhook=self._record_webhook)
        self.webhook_id = ""
        self.auto_recovery = True
        self.expected: list[str] = []
        self.received: list[str] = []

    def _record_webhook(self, webhook: ReceivedWebhook) -> None:
        if webhook.problem is None and not _is_rewind_event(webhook.body):
            self.received.append(webhook.event_id)


class AccountPlatform:
    """A platform whose users act, and whose developers subscribe to one user each.

    Events have no `webhookId`: rules match them with webhooks. An async context manager that
    registers the webhooks on entry.
    """

    def __init__(self, client: ApiClient, webhooks: int, live: LiveProgress) -> None:
        self.developers = [Developer(number) for number in range(webhooks)]
        self._client = client
        self._live = live
        self._published = 0
        self._start_ms = int(time.time() * 1000) - HOUR_MS

    async def __aenter__(self) -> Self:
        """Start the receivers, and register their webhooks and rules."""
        for number, developer in enumerate(self.developers):
            await developer.receiver.start()
            # In a thread: the verification ping arrives on this event loop.
            await asyncio.to_thread(self._register, developer, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the receivers."""
        for developer in self.developers:
            await developer.receiver.stop()

    def event_time_ms(self, number: int, events: int) -> int:
        """Return the event time of one of `events` events that are spread over an hour."""
        return self._start_ms + number * HOUR_MS // events

    async def publish(self, start: int, end: int, events: int, *, held: int = 0) -> None:
        """Publish the events `[start, end)` in order, and wait until live delivery has ended.

        `held` events are kept: those with which failing receivers are probed.
        """
        for first in range(start, end, EVENTS_PER_REQUEST):
            numbers = range(first, min(first + EVENTS_PER_REQUEST, end))
            lines = "\n".join(json.dumps(self._event(number, events)) for number in numbers)
            self._published += await asyncio.to_thread(self._client.publish, lines.encode())
            await self._live.wait_until_settled(self._published - UNSETTLED_MAX)
        await self._live.wait_until_settled(self._published - held)

    def _register(self, developer: Developer, number: int) -> None:
        url = f"{developer.receiver.url}/hooks/{number}"
        secret = developer.receiver.secret
        assert secret is not None
        webhook = self._client.create_webhook(
            url, f"developer {number}", secret, auto_recovery=developer.auto_recovery
        )
        developer.webhook_id = webhook["id"]
        rule = {"eventTypes": ["*"], "where": {"data.forUserId": developer.user_id}}
        self._client.put_rule(developer.webhook_id, "my-user", rule)

    def _event(self, number: int, events: int) -> dict[str, object]:
        """Return an event of a developer's user. The first developer gets a quarter of all."""
        others = len(self.developers) - 1
        developer = self.developers[0 if number % 4 == 0 else 1 + number % others]
        event_id = f"evt_{number:06d}"
        developer.expected.append(event_id)
        return {
            "id": event_id,
            "type": TYPES[number % len(TYPES)],
            "time": format_time(self.event_time_ms(number, events)),
            "data": {"forUserId": developer.user_id, "sequence": number},
        }


def _is_rewind_event(body: bytes) -> bool:
    return str(json.loads(body)["type"]).startswith(_REWIND_TYPES)
