"""A webhook receiver on its own thread."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self

from app.webhooks.receiver import ReceivedWebhook, SignatureStatus, WebhookReceiver
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S


def is_event(webhook: ReceivedWebhook) -> bool:
    """Report whether a webhook is a published event and not a ping or notice."""
    return not (webhook.is_ping or webhook.event_id.startswith("rpl_"))


class ReceiverThread:
    """A receiver on its own loop and thread. `webhooks` has all requests in order."""

    def __init__(self) -> None:
        self.webhooks: list[ReceivedWebhook] = []
        self._receiver = WebhookReceiver(port=free_port(), on_webhook=self.webhooks.append)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="receiver")

    def __enter__(self) -> Self:
        self._thread.start()
        self.come_up()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    @property
    def url(self) -> str:
        return f"{self._receiver.url}/hooks"

    @property
    def taken(self) -> list[str]:
        """Return the ids of accepted events in the order of arrival.

        Without those of pings and of notices that a replay is over.
        """
        return [
            webhook.event_id
            for webhook in self.webhooks
            if 200 <= webhook.status < 300 and is_event(webhook)
        ]

    @property
    def problems(self) -> list[str | None]:
        """Return the errors of invalid signatures."""
        return [
            webhook.problem
            for webhook in self.webhooks
            if webhook.signature is not SignatureStatus.VERIFIED
        ]

    def expect(self, secret: str | None) -> None:
        """Verify all signatures from now on. None disables the check."""
        self._receiver.secret = secret

    def answer(
        self,
        status: int,
        *,
        delay_s: float = 0.0,
        retry_after: str | None = None,
        body: bytes = b"",
    ) -> None:
        self._receiver.answer(status, delay_s=delay_s, retry_after=retry_after, body=body)

    def come_up(self) -> None:
        self._run(self._receiver.start())

    def go_down(self) -> None:
        """Close the listening socket and all connections."""
        self._run(self._receiver.stop())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)
