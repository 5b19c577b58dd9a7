"""SSRF guard: webhooks may be sent to public addresses, not into the operator's network.

`check_url` checks the text of a URL, when it is registered or first used. `check_address` checks
the address of each connection, because a name may resolve differently each time (DNS rebinding).

Source: IANA IPv4 and IPv6 Special-Purpose Address Registries; RFC 6890.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

import idna

if TYPE_CHECKING:
    # `rewind listen` imports this module, and its help does not need Pydantic.
    from app.config import Settings

URL_CHARACTERS_MAX: Final = 2048
_PORTS: Final = {"https": 443, "http": 80}
_TEXT: Final = re.compile(r"[^\x00-\x20\x7f\\]*")
_PATH_TEXT: Final = re.compile(r"[\x21-\x7e]*")
# Host names must not have underscores, but container networks use them.
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class UrlRefused(ValueError):
    """A URL that is malformed or not allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed is {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


class AddressRefused(ValueError):
    """An address that is not allowed; `kind` says why, such as "private"."""

    def __init__(self, address: Address, kind: str, allowed: str) -> None:
        super().__init__(f"address is {address} ({kind}); allowed is {allowed}")
        self.address = address
        self.kind = kind
        self.allowed = allowed


class Origin(NamedTuple):
    """Scheme, host and port of a URL. URLs of one origin share connections."""

    scheme: str
    host: str
    port: int

    @property
    def header(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


class CheckedUrl(NamedTuple):
    """A URL that the guard allows, as origin and request target."""

    origin: Origin
    path_and_query: str


@dataclass(frozen=True, slots=True)
class _Block:
    network: Network
    kind: str
    is_private: bool = False
    """Whether `allow_private` allows it."""

    v4_shift: int | None = None
    """The bits after an embedded IPv4 address; None without one."""


def _block(
    network: str, kind: str, *, is_private: bool = False, v4_shift: int | None = None
) -> _Block:
    return _Block(ip_network(network), kind, is_private, v4_shift)


# These addresses return credentials to any process in the cloud, without authentication.
_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # AWS, Azure, Google Cloud, OpenStack and most others
            "169.254.170.2",  # AWS: tasks of ECS
            "169.254.170.23",  # AWS: pods of EKS
            "169.254.42.42",  # Scaleway
            "192.0.0.192",  # Oracle Cloud Classic
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure: the wire server
            "fd00:ec2::254",  # AWS
            "fd00:ec2::23",  # AWS: pods of EKS
            "fd20:ce::254",  # Google Cloud
            "fd00:42::42",  # Scaleway
            "fe80::a9fe:a9fe",  # OpenStack
        ),
    )
)
# Longer prefixes precede those that contain them: the first match decides the kind.
_BLOCKS_V4: Final = (
    _block("0.0.0.0/8", "unspecified"),
    _block("10.0.0.0/8", "private", is_private=True),
    _block("100.64.0.0/10", "shared by a carrier's customers", is_private=True),
    _block("127.0.0.0/8", "loopback", is_private=True),
    _block("169.254.0.0/16", "link-local"),
    _block("172.16.0.0/12", "private", is_private=True),
    _block("192.0.0.0/24", "reserved for protocols"),
    _block("192.0.2.0/24", "documentation"),
    _block("192.31.196.0/24", "reserved for AS112"),
    _block("192.52.193.0/24", "reserved for AMT"),
    _block("192.88.99.0/24", "6to4 relay"),
    _block("192.168.0.0/16", "private", is_private=True),
    _block("192.175.48.0/24", "reserved for AS112"),
    _block("198.18.0.0/15", "benchmark"),
    _block("198.51.100.0/24", "documentation"),
    _block("203.0.113.0/24", "documentation"),
    _block("224.0.0.0/4", "multicast"),
    _block("255.255.255.255/32", "broadcast"),
    _block("240.0.0.0/4", "reserved"),
)
_BLOCKS_V6: Final = (
    _block("::/128", "unspecified"),
    _block("::1/128", "loopback", is_private=True),
    # These embed an IPv4 address, and would bypass the table above.
    _block("::ffff:0:0/96", "IPv4-mapped", v4_shift=0),
    _block("::ffff:0:0:0/96", "IPv4-translated", v4_shift=0),
    _block("::/96", "IPv4-compatible", v4_shift=0),
    _block("64:ff9b::/96", "NAT64", v4_shift=0),
    _block("64:ff9b:1::/48", "NAT64 of a network", v4_shift=0),
    _block("2001::/32", "Teredo"),
    _block("2002::/16", "6to4", v4_shift=80),
    _block("100::/64", "discard"),
    _block("2001::/23", "reserved for protocols"),
    _block("2001:db8::/32", "documentation"),
    _block("2620:4f:8000::/48", "reserved for AS112"),
    _block("3fff::/20", "documentation"),
    _block("fc00::/7", "unique local", is_private=True),
    _block("fe80::/10", "link-local"),
    _block("fec0::/10", "site-local"),
    _block("ff00::/8", "multicast"),
)
_HTTP_SETTING: Final = " (http: if the operator sets REWIND_ALLOW_HTTP_TARGETS=true)"
_PRIVATE_SETTINGS: Final = (
    " (private ones: if the operator lists them in REWIND_ALLOWED_NETWORKS, or sets "
    "REWIND_ALLOW_PRIVATE_TARGETS=true)"
)

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_LOCALHOST: Final[tuple[Address, ...]] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


@dataclass(frozen=True, slots=True)
class Guard:
    """Decides which URLs and addresses are allowed.

    `allow_private` is for development and private networks: it allows loopback, private, shared
    (100.64.0.0/10) and unique local addresses, and plain http. `allow_http` allows plain http.
    `networks` are allowed although they are not public. A cloud metadata address is allowed only
    if `networks` has that address itself, not by a wider network.
    """

    allow_private: bool = False
    allow_http: bool = False
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """The guard of the operator's settings."""
        return cls(settings.allow_private_targets, settings.allow_http_targets, settings.networks)

    def check_url(self, url: str) -> CheckedUrl:
        """Return the parsed `url`; a host that is an IP address is checked like `check_address`.

        Raises:
            UrlRefused: `url` is malformed or not allowed.
        """
        parts = _split(url)
        scheme = self._scheme(parts)
        host = self._host(parts)
        return CheckedUrl(Origin(scheme, host, _port(parts, scheme)), _path_and_query(parts))

    def check_address(self, address: str | Address) -> None:
        """Return if connections to `address` are allowed.

        Raises:
            AddressRefused: it is not public, and neither `allow_private` nor `networks` allows it.
            ValueError: it is not an IP address.
        """
        address = _without_zone(ip_address(address))
        kind = self._refused_kind(address)
        if kind is not None:
            block = _block_of(address)
            is_private = address not in _METADATA and block is not None and block.is_private
            raise AddressRefused(address, kind, self._addresses_allowed(is_private))

    def _refused_kind(self, address: Address) -> str | None:
        """The kind of `address` if it is not allowed, else None."""
        if address in _METADATA:
            return None if ip_network(address) in self.networks else "cloud metadata"
        block = _block_of(address)
        if block is None or (block.is_private and self.allow_private):
            return None
        if not self._is_listed(address):
            return block.kind
        if block.v4_shift is None:
            return None
        # A listed NAT64 prefix allows public addresses behind it, not private ones.
        return self._refused_kind(IPv4Address(int(address) >> block.v4_shift & 0xFFFF_FFFF))

    def _is_listed(self, address: Address) -> bool:
        return any(address in network for network in self.networks)

    def _addresses_allowed(self, is_private: bool) -> str:
        # Without the networks: owners of webhooks must not learn them.
        listed = ", or one in a network that the operator lists" if self.networks else ""
        if self.allow_private:
            return f"a public or private address{listed}"
        return f"a public address{listed}{_PRIVATE_SETTINGS if is_private else ''}"

    def _scheme(self, parts: SplitResult) -> str:
        allowed = ("https", "http") if self.allow_private or self.allow_http else ("https",)
        if parts.scheme not in allowed:
            setting = _HTTP_SETTING if parts.scheme == "http" else ""
            raise UrlRefused("url scheme", parts.scheme, " or ".join(allowed) + setting)
        return parts.scheme

    def _host(self, parts: SplitResult) -> str:
        address = _literal_address(parts)
        if address is None:
            return self._name(parts.hostname or "")
        try:
            self.check_address(address)
        except AddressRefused as refusal:
            raise UrlRefused(
                "url host", f"{address} ({refusal.kind})", f"a name or {refusal.allowed}"
            ) from None
        return str(address)

    def _name(self, host: str) -> str:
        name = _ascii_name(host)
        is_local = name == "localhost" or name.endswith(".localhost")
        if is_local and all(map(self._refused_kind, _LOCALHOST)):
            raise UrlRefused(
                "url host", host, f"a name or {self._addresses_allowed(is_private=True)}"
            )
        return name


def _without_zone(address: Address) -> Address:
    """`address` without its zone (`%eth0`), which would make it unequal to the listed ones."""
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) else address


def _block_of(address: Address) -> _Block | None:
    blocks = _BLOCKS_V4 if isinstance(address, IPv4Address) else _BLOCKS_V6
    for block in blocks:
        if address in block.network:
            return block
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return _Block(_GLOBAL_UNICAST, "reserved")
    return None


def _split(url: str) -> SplitResult:
    if len(url) > URL_CHARACTERS_MAX:
        raise UrlRefused("url length", len(url), f"at most {URL_CHARACTERS_MAX} characters")
    # Checked first: urlsplit silently removes tabs and newlines.
    if not _TEXT.fullmatch(url):
        raise UrlRefused("url", url, "text without spaces, control characters and backslashes")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UrlRefused("url", url, "an absolute URL like https://example.com/hooks") from None
    if "@" in parts.netloc:
        # Without the value: it may be a password.
        raise UrlRefused("url user", "(given)", "none")
    if "#" in url:
        raise UrlRefused("url fragment", parts.fragment, "none")
    return parts


def _port(parts: SplitResult, scheme: str) -> int:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise UrlRefused("url port", parts.netloc.rpartition(":")[2], "1 to 65535")
    return _PORTS[scheme] if port is None else port


def _path_and_query(parts: SplitResult) -> str:
    text = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not _PATH_TEXT.fullmatch(text):
        raise UrlRefused("url path", text, "ASCII, other characters percent-encoded")
    return text


def _literal_address(parts: SplitResult) -> Address | None:
    """The IP address that is the host; None if the host is a name.

    Only the usual notations are valid: resolvers also accept `0x7f.1` or `2130706433`.
    """
    host = parts.hostname or ""
    in_brackets = parts.netloc.startswith("[")
    last_label = host.rstrip(".").rpartition(".")[2]
    if not in_brackets and not _NUMERIC_LABEL.fullmatch(last_label):
        return None
    try:
        address: Address = IPv6Address(host) if in_brackets else IPv4Address(host)
    except ValueError:
        raise UrlRefused("url host", host, "a name or an address like 192.0.2.1 or [::1]") from None
    if isinstance(address, IPv6Address) and address.scope_id:
        raise UrlRefused("url host", host, "an address without a zone")
    return address


def _ascii_name(host: str) -> str:
    refusal = UrlRefused("url host", host, "a host name of at most 253 characters")
    name = host
    if not host.isascii():
        try:
            name = idna.encode(host, uts46=True).decode("ascii")
        except idna.IDNAError:
            raise refusal from None
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise refusal
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        raise refusal
    return name
