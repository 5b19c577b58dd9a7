"""Opens connections: resolves the name, drops addresses that the guard refuses, connects.

It connects to the checked address, never to the name, so a later DNS change has no effect. That
also holds for a proxy, which is asked for a tunnel to the address.
"""

import asyncio
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from app.domain.egress_proxy import EgressProxy
from app.webhooks.guard import AddressRefused, Guard, Origin
from app.webhooks.http_connection import HttpConnection
from app.webhooks.limits import SenderLimits
from app.webhooks.tunnel import TunnelFailed, open_tunnel

_RESOLVER_THREADS: Final = 64
"""Concurrent DNS lookups. A name server that hangs occupies a thread per name, for up to twenty
seconds: the webhooks of one account must leave threads for other accounts."""

_ADDRESSES_TRIED_MAX: Final = 4
"""With more addresses, the timeout of each would be too short."""


class DialFailed(Exception):
    """No connection was made; the message begins with the step that failed."""


class Dialer:
    """Opens the connections of one sender.

    Without `tls` it trusts the authorities of the machine, which it loads for the first https URL:
    that takes 40 ms.
    """

    def __init__(
        self,
        guard: Guard,
        limits: SenderLimits,
        tls: ssl.SSLContext | None,
        proxy: EgressProxy | None = None,
    ) -> None:
        self._guard = guard
        self._proxy = proxy
        self._limits = limits
        self._tls = tls
        self._loading_tls: asyncio.Future[ssl.SSLContext] | None = None
        self._threads = ThreadPoolExecutor(_RESOLVER_THREADS, thread_name_prefix="resolver")
        self._lookups: dict[str, asyncio.Future[list[str]]] = {}

    def close(self) -> None:
        """End the threads after their current lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def dial(self, origin: Origin) -> HttpConnection:
        """Open a connection to `origin`, over TLS if its scheme is https.

        Raises:
            DialFailed: DNS, address check, proxy, TCP, TLS or timeout failed.
        """
        limit_s = self._limits.connect_s
        deadline = asyncio.get_running_loop().time() + limit_s
        try:
            async with asyncio.timeout_at(deadline):
                addresses = self._allowed_addresses(origin.host, await self._resolve(origin.host))
                return await self._connect(origin, addresses, deadline)
        except TimeoutError:
            raise DialFailed(f"timeout: no connection within {limit_s:g} s") from None

    async def _resolve(self, host: str) -> list[str]:
        """The addresses of `host`, best first; concurrent callers share one lookup."""
        lookup = self._lookups.get(host)
        if lookup is None:
            loop = asyncio.get_running_loop()
            lookup = loop.run_in_executor(self._threads, _resolve_host, host)
            self._lookups[host] = lookup
            lookup.add_done_callback(lambda done: self._end_lookup(host, done))
        try:
            # Shielded: the timeout of one attempt must not cancel the lookup of others.
            return await asyncio.shield(lookup)
        except (OSError, UnicodeError) as error:
            raise DialFailed(f"dns: {getattr(error, 'strerror', None) or error}") from None

    def _end_lookup(self, host: str, done: "asyncio.Future[list[str]]") -> None:
        self._lookups.pop(host, None)
        if not done.cancelled():
            # Retrieved here too, because all callers may have timed out.
            done.exception()

    def _allowed_addresses(self, host: str, addresses: list[str]) -> list[str]:
        allowed = []
        refused = "no address"
        for address in addresses:
            try:
                self._guard.check_address(address)
            except AddressRefused as refusal:
                # Without the address: a webhook's owner must not map the network by names.
                refused = f"{refusal.kind}; allowed is {refusal.allowed}"
            else:
                allowed.append(address)
        if not allowed:
            raise DialFailed(f"address refused: {host} is {refused}")
        return allowed[:_ADDRESSES_TRIED_MAX]

    async def _connect(
        self, origin: Origin, addresses: list[str], deadline: float
    ) -> HttpConnection:
        """Connect to the first address that accepts; each gets a share of the remaining time."""
        loop = asyncio.get_running_loop()
        failure = ""
        for index, address in enumerate(addresses):
            share_s = (deadline - loop.time()) / (len(addresses) - index)
            try:
                async with asyncio.timeout(share_s):
                    return await self._open(origin, address)
            except TunnelFailed as error:
                failure = f"proxy: {error}"
            except OSError as error:
                failure = _failure(error)
        raise DialFailed(failure)

    async def _open(self, origin: Origin, address: str) -> HttpConnection:
        if self._proxy is not None:
            return await self._open_through(self._proxy, origin, address)
        # The certificate must match the name, though the connection is to an address.
        is_https = origin.scheme == "https"
        tls, name = (await self._load_tls(), origin.host) if is_https else (None, None)
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(self._limits),
            address,
            origin.port,
            ssl=tls,
            server_hostname=name,
        )
        return connection

    async def _open_through(
        self, proxy: EgressProxy, origin: Origin, address: str
    ) -> HttpConnection:
        connection = HttpConnection(self._limits)
        transport = await open_tunnel(proxy, address, origin.port)
        transport.set_protocol(connection)
        if origin.scheme == "https":
            loop = asyncio.get_running_loop()
            secured = await loop.start_tls(
                transport, connection, await self._load_tls(), server_hostname=origin.host
            )
            # It returns None only for a connection that was closed before.
            if secured is None:
                raise DialFailed("proxy: connection closed")
            transport = secured
        connection.connection_made(transport)
        return connection

    async def _load_tls(self) -> ssl.SSLContext:
        """The context of all TLS connections; concurrent callers share the loading."""
        if self._tls is None:
            if self._loading_tls is None:
                loop = asyncio.get_running_loop()
                self._loading_tls = loop.run_in_executor(self._threads, ssl.create_default_context)
            # Shielded: the timeout of one attempt must not cancel the loading for others.
            self._tls = await asyncio.shield(self._loading_tls)
        return self._tls


def _resolve_host(host: str) -> list[str]:
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
        # A failed connect has an errno, so this connection was closed after the connect.
        return "tls: connection closed during the handshake"
    return f"connect: {os.strerror(error.errno)}"
