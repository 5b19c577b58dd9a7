"""Opens connections: resolve the name, drop the addresses that the guard refuses, connect.

The connection is made to the very address that was checked, never to a name: what the name
resolves to a moment later does not matter.
"""

import asyncio
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.webhooks.guard import AddressRefused, Guard, Origin
from app.webhooks.http_connection import HttpConnection
from app.webhooks.limits import SenderLimits

_RESOLVER_THREADS: Final = 64
"""Names that may be asked for at once. A name server that hangs holds one thread a name, for up to
twenty seconds: as many as one account has webhooks must leave room for the others'."""

_ADDRESSES_TRIED_MAX: Final = 4
"""With more, each would get too small a share of the time to connect."""


class DialFailed(Exception):
    """No connection was made; the message begins with the part that failed."""


class Dialer:
    """Opens connections for one sender."""

    def __init__(self, guard: Guard, limits: SenderLimits, tls: ssl.SSLContext) -> None:
        self._guard = guard
        self._limits = limits
        self._tls = tls
        self._threads = ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="resolver")
        self._lookups: dict[str, asyncio.Future[list[str]]] = {}

    def close(self) -> None:
        """Let the threads end once what they ask for is answered."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def dial(self, origin: Origin) -> HttpConnection:
        """A fresh connection to `origin`, over TLS when its scheme is https.

        Raises:
            DialFailed: not resolved, not allowed, not reached, not trusted, or not in time.
        """
        limit_s = self._limits.connect_s
        deadline = asyncio.get_running_loop().time() + limit_s
        try:
            async with asyncio.timeout_at(deadline):
                addresses = self._allowed(origin.host, await self._resolve(origin.host))
                return await self._connect(origin, addresses, deadline)
        except TimeoutError:
            raise DialFailed(f"timeout: no connection within {limit_s:g} s") from None

    async def _resolve(self, host: str) -> list[str]:
        """The addresses of `host`, best first; all who ask at once share one look-up."""
        lookup = self._lookups.get(host)
        if lookup is None:
            loop = asyncio.get_running_loop()
            lookup = loop.run_in_executor(self._threads, _look_up, host)
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda done: self._end_lookup(host, done))
        try:
            # Shielded: one attempt that runs out of time must not take the others' answer along.
            return await asyncio.shield(lookup)
        except (OSError, UnicodeError) as error:
            raise DialFailed(f"dns: {getattr(error, 'strerror', None) or error}") from None

    def _end_lookup(self, host: str, done: "asyncio.Future[list[str]]") -> None:
        self._lookups.pop(host, None)
        if not done.cancelled():
            # Read here too, since all who asked may have run out of time.
            done.exception()

    def _allowed(self, host: str, addresses: list[str]) -> list[str]:
        allowed = []
        refused = "no address"
        for address in addresses:
            try:
                self._guard.check_address(address)
            except AddressRefused as refusal:
                # Without the address: a receiver's owner must not map our network by names.
                refused = f"{refusal.kind}; allowed is {refusal.allowed}"
            else:
                allowed.append(address)
        if not allowed:
            raise DialFailed(f"address refused: {host} is {refused}")
        return allowed[:_ADDRESSES_TRIED_MAX]

    async def _connect(
        self, origin: Origin, addresses: list[str], deadline: float
    ) -> HttpConnection:
        """A connection to the first address that takes one; each has its share of the time."""
        loop = asyncio.get_running_loop()
        failure = ""
        for index, address in enumerate(addresses):
            share_s = (deadline - loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share_s):
                    return await self._open(origin, address)
            except OSError as error:
                failure = _failure(error)
        raise DialFailed(failure)

    async def _open(self, origin: Origin, address: str) -> HttpConnection:
        is_tls = origin.scheme == "https"
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._limits),
            address,
            origin.port,
            ssl=self._tls if is_tls else None,
            # The certificate must be the name's, though the connection is made to an address.
            server_hostname=origin.host if is_tls else None,
        )
        return connection


def _look_up(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _failure(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, TimeoutError):
        return "timeout: no connection in time"
    if error.errno is None:
        # A connection that could not be made has a number; this one was made, then closed.
        return "tls: the connection was closed amid the handshake"
    return f"connect: {os.strerror(error.errno)}"
