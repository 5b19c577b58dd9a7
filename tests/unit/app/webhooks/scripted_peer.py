"""A peer that follows a script byte by byte."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, TypeVar

T = TypeVar("T")

KAFKA: Final = b"\0"
"""The first byte of a request of a Kafka client: its size has four bytes."""


class ScriptedPeer:
    """Responds to the n-th request of the k-th connection with `script[k][n]`, then closes it.

    `None` closes without a response; after the last entry of a connection the peer waits until
    the other side closes it, when `lingers` is set.
    """

    def __init__(self, script: Sequence[Sequence[bytes | None]], *, lingers: bool = False) -> None:
        self._script = script
        self._lingers = lingers
        self.connections = 0
        self.requests: list[bytes] = []
        self.closed_by_sender = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        return self

    async def reached_by(self, send: Callable[[], Awaitable[T]]) -> T:
        """Return the outcome of the first sending that reaches the peer.

        A short timeout may end before a busy machine has connected.
        """
        while True:
            outcome = await send()
            if self.connections:
                return outcome

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(1)
        if first == KAFKA:
            # A client of another test, whose broker had this port before.
            writer.close()
            return
        script = self._script[min(self.connections, len(self._script) - 1)]
        self.connections += 1
        try:
            await self._follow(first, script, reader, writer)
            if self._lingers and not await reader.read(1):
                self.closed_by_sender.set()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed_by_sender.set()
        finally:
            writer.close()

    async def _follow(
        self,
        first: bytes,
        script: Sequence[bytes | None],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        for answer in script:
            head = first + await reader.readuntil(b"\r\n\r\n")
            first = b""
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self.requests.append(head + await reader.readexactly(int(length or 0)))
            if answer is None:
                return
            writer.write(answer)
            await writer.drain()
