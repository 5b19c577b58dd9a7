"""A peer with faulty behaviour on a real socket."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Final, Self

HOST: Final = "127.0.0.2"
"""Kafka clients of other tests connect to ports of 127.0.0.1 that a broker had before."""

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class FaultyPeer:
    """Applies `behaviour` to each connection until it returns or the other side closes."""

    def __init__(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self._behaviour = behaviour
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    @property
    def is_left_alone(self) -> bool:
        """Whether all connections are closed."""
        return not self._tasks

    async def __aenter__(self) -> Self:
        # Some behaviours fail before or during the TLS handshake.
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://{HOST}:{port}/hook"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._behaviour(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side left
        finally:
            writer.close()
            self._tasks.discard(task)


def hang() -> Behaviour:
    """Read everything and send nothing."""

    async def behave(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(2**16):
            pass

    return behave


def say(*parts: bytes) -> Behaviour:
    """Respond to a request with `parts`, then close."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"".join(parts))
        await writer.drain()

    return behave


def drip(head: bytes, drop: bytes, pause_s: float = 0.02) -> Behaviour:
    """Respond with `head` at once, then with `drop` periodically, without end."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while not writer.is_closing():
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return behave


def flood(head: bytes, wave: bytes) -> Behaviour:
    """Respond with `head`, then with `wave` as fast as possible, without end."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while not writer.is_closing():
            writer.write(wave)
            await writer.drain()

    return behave


def reset(*parts: bytes) -> Behaviour:
    """Respond to a request with `parts`, then reset the connection (RST)."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await say(*parts)(reader, writer)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return behave
