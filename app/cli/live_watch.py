"""How far the live path is, as its metrics tell."""

import asyncio
import socket
from typing import Final

import httpx

_SETTLED: Final = "rewind_live_settled_events_total{"
_LOOK_S: Final = 0.05


def free_port() -> int:
    """A port of this machine that nobody listens on right now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class LiveWatch:
    """Watches the live process that shows its metrics at `port`."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def until_settled(self, events: int) -> None:
        """Return once so many owed events are delivered, or left for a replay to bring."""
        async with httpx.AsyncClient() as client:
            while await self._settled(client) < events:  # noqa: ASYNC110  the process is another
                await asyncio.sleep(_LOOK_S)

    async def _settled(self, client: httpx.AsyncClient) -> float:
        lines = (await client.get(self._url)).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_SETTLED))
