"""The client's address behind trusted proxies, from X-Forwarded-For or Forwarded.

Source: RFC 7239 sections 4, 5.2, 6 and 8.1.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

FORWARDED: Final = "forwarded"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_FOR: Final = re.compile(r'(?:^|;)[ \t]*for[ \t]*=[ \t]*("[^"]*"|[^";]*)', re.IGNORECASE)
_WITH_PORT: Final = re.compile(r"\[([^\]]*)\](?::\d{1,5})?|([^:]*):\d{1,5}")


class TrustedProxies:
    """Replaces the client of requests that a trusted proxy sent by the one that it names.

    `header` is the header that the proxies append to: `x-forwarded-for` or `forwarded`. The other
    one is ignored, because a proxy may forward what its client wrote there.
    """

    def __init__(self, app: ASGIApp, networks: Sequence[Network], header: str) -> None:
        self._app = app
        self._networks = networks
        self._header = header

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        client = scope.get("client")
        if scope["type"] == "http" and client is not None:
            host = self.client_of(client[0], Headers(scope=scope).getlist(self._header))
            if host != client[0]:
                scope = {**scope, "client": (host, 0)}
        await self._app(scope, receive, send)

    def client_of(self, peer: str, values: Sequence[str]) -> str:
        """The first address before `peer` that is no trusted proxy; `values` are the header's.

        The header is read from its end, where the nearest proxy writes. Everything before the first
        untrusted address, or before an element without an address, is what a client claims.
        """
        client = _address(peer)
        if client is None:
            return peer
        for element in _elements_from_end(values):
            if not self._is_trusted(client):
                break
            previous = _address(self._node(element))
            if previous is None:
                break
            client = previous
        return str(client)

    def _node(self, element: str) -> str:
        if self._header != FORWARDED:
            return element.strip()
        found = _FOR.search(element)
        return "" if found is None else found[1].strip().strip('"')

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _elements_from_end(values: Iterable[str]) -> Iterator[str]:
    """The elements of a list header, the last one first; a comma in quotes separates nothing.

    Read from the start, a quote that a client left open would hide the elements behind it.
    """
    text = ",".join(values)
    end, is_quoted = len(text), False
    for index in range(len(text) - 1, -1, -1):
        if text[index] == '"':
            is_quoted = not is_quoted
        elif text[index] == "," and not is_quoted:
            yield text[index + 1 : end]
            end = index
    yield text[:end]


def _address(node: str) -> Address | None:
    """The address of a node, which may have a port; None for `unknown` and other names."""
    with_port = _WITH_PORT.fullmatch(node)
    if with_port is not None:
        node = with_port[1] or with_port[2]
    try:
        address = ip_address(node)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
