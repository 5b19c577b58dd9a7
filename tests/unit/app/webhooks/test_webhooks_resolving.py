import asyncio
import socket
import threading
from contextlib import closing
from typing import Any

import pytest

from app.config import Settings
from app.domain.delivery import Unreachable
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_hanging_lookups_of_one_account_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end, resolve = threading.Event(), socket.getaddrinfo

    def slow(host: str, *args: Any, **kwargs: Any) -> Any:
        if host.endswith(".invalid"):
            may_end.wait()
        return resolve(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        async with WebhookSender(Guard(allow_private=True)) as sender, asyncio.TaskGroup() as group:
            for number in range(Settings().webhooks_per_account):
                group.create_task(sender.send(f"http://{number}.invalid/", {}, b""))
            # Once around the loop: all of them have asked.
            await asyncio.sleep(0)
            try:
                outcome = await sender.send(f"http://localhost:{port}/", {}, b"")
            finally:
                may_end.set()
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("connect: ")
