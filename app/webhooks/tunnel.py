"""Tunnels through an HTTP proxy, for networks whose requests leave from fixed addresses.

Source: RFC 9110, section 9.3.6 (CONNECT) and section 11.7 (authentication at proxies).
"""

import asyncio
import os
from typing import Final

from app.domain.egress_proxy import EgressProxy

HEAD_BYTES_MAX: Final = 16 * 1024
"""Size of the proxy's answer."""


class TunnelFailed(Exception):
    """The proxy is unreachable, or opened no tunnel."""


async def open_tunnel(proxy: EgressProxy, address: str, port: int) -> asyncio.Transport:
    """Return a transport whose bytes the proxy exchanges with an address.

    The caller sets its protocol.

    Raises:
        TunnelFailed: the proxy is unreachable, or opened no tunnel.
    """
    loop = asyncio.get_running_loop()
    try:
        transport, handshake = await loop.create_connection(_Handshake, proxy.host, proxy.port)
    except OSError as error:
        reason = error.strerror if error.errno is None else os.strerror(error.errno)
        raise TunnelFailed(f"connect: {reason}") from None
    try:
        transport.write(proxy.connect_request(address, port))
        await handshake.tunnel
    except BaseException:
        transport.abort()
        raise
    return transport


class _Handshake(asyncio.Protocol):
    """Waits for the proxy's answer to one CONNECT."""

    def __init__(self) -> None:
        self.tunnel: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = bytearray()

    def data_received(self, data: bytes) -> None:
        """Collect the head; anything behind it comes too early, since no request was sent."""
        self._head += data
        head, end, rest = bytes(self._head).partition(b"\r\n\r\n")
        if self.tunnel.done() or not (end or len(self._head) > HEAD_BYTES_MAX):
            return
        version, _, status = head.partition(b"\r\n")[0].partition(b" ")
        if not end or rest or not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
            self.tunnel.set_exception(TunnelFailed("malformed answer to CONNECT"))
        elif status[:1] != b"2":
            text = status[:3].decode()
            self.tunnel.set_exception(TunnelFailed(f"HTTP {text} to CONNECT"))
        else:
            self.tunnel.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        """Fail, if there was no answer."""
        if not self.tunnel.done():
            self.tunnel.set_exception(TunnelFailed("connection closed without an answer"))
