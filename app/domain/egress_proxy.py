"""The HTTP proxy through which webhooks are sent."""

import base64
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """The address of a proxy, and the header that authenticates at it, if any."""

    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """The proxy at `http://[USER:PASSWORD@]HOST:PORT`; None if `url` is empty.

        Raises:
            ValueError: the URL has another form; the message omits what may be a password.
        """
        if not url:
            return None
        try:
            parts = urlsplit(url)
            is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not (host and port and is_bare and parts.scheme == "http"):
            raise ValueError("allowed is http://HOST:PORT or http://USER:PASSWORD@HOST:PORT")
        authorization = None
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        return cls(host, port, authorization)

    def connect_request(self, address: str, port: int) -> bytes:
        """The request for a tunnel to an address (CONNECT, RFC 9110, section 9.3.6)."""
        target = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        if self.authorization is not None:
            lines.append(f"proxy-authorization: {self.authorization}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")
