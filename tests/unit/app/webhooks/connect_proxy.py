"""A proxy that opens tunnels, and may answer otherwise."""

import asyncio
from contextlib import suppress
from typing import Self

OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class ConnectProxy:
    """Listens on loopback; an async context manager. `requests` has the heads that it received.

    With `answer`, it sends these bytes and opens no tunnel.
    """

    def __init__(self, answer: bytes | None = None) -> None:
        self._answer = answer
        self.requests: list[list[str]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer_client(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
        self.requests.append(head.rstrip().split("\r\n"))
        if self._answer is not None:
            writer.write(self._answer)
            await writer.drain()
            return
        host, _, port = self.requests[-1][0].split()[1].rpartition(":")
        there, here = await asyncio.open_connection(host.strip("[]"), int(port))
        writer.write(OPENED)
        await asyncio.gather(_copy(reader, here), _copy(there, writer))


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.close()
