"""The guard parses every spelling of an address that a resolver accepts."""

import socket
from ipaddress import IPv4Address, IPv6Address
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from app.webhooks.guard import Guard, UrlRefused

PUBLIC = Guard()

NOT_PUBLIC_V4 = [
    *("0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.1.2.3"),
    *("169.254.169.254", "172.16.0.1", "192.168.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
]
NOT_PUBLIC_V6 = [
    *("::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
    *("64:ff9b::7f00:1", "2002:7f00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "ff02::1"),
]

# ASCII, subscripts, full width, mathematical bold: digits all of them to IDNA's mapping.
ZEROS = [0x30, 0x2080, 0xFF10, 0x1D7CE]
DOTS = [".", "\u3002", "\uff0e", "\uff61", "%2e"]


@st.composite
def v4_spellings(draw: st.DrawFn, address: IPv4Address) -> str:
    """A spelling of an IPv4 address that resolvers accept (`inet_aton`)."""
    count, number = draw(st.integers(1, 4)), int(address)
    parts = [number >> 24 - 8 * index & 0xFF for index in range(count - 1)]
    parts.append(number & (1 << 8 * (5 - count)) - 1)
    forms = st.sampled_from(["{:d}", "{:o}", "0{:o}", "000{:o}", "0x{:x}", "0X{:X}", "0x00{:x}"])
    text = ".".join(draw(forms).format(part) for part in parts)
    zero = draw(st.sampled_from(ZEROS))
    text = text.translate({0x30 + digit: zero + digit for digit in range(10)})
    dot = draw(st.sampled_from(DOTS))
    return text.replace(".", dot) + draw(st.sampled_from(["", ".", "..", dot]))


@st.composite
def v6_spellings(draw: st.DrawFn, address: IPv6Address) -> str:
    """A spelling of an IPv6 address; some are invalid."""
    mixed = address.exploded[:30] + str(IPv4Address(int(address) & 0xFFFF_FFFF))
    text = draw(st.sampled_from([address.compressed, address.exploded, mixed]))
    text = draw(st.sampled_from([text, text.upper()]))
    zone = draw(st.sampled_from(["", "%1", "%25lo", "%25"]))
    return draw(st.sampled_from([f"[{text}{zone}]", f"[{text}{zone}].", f"{text}{zone}"]))


ANY_V4 = cast("st.SearchStrategy[IPv4Address]", st.ip_addresses(v=4))
ANY_V6 = cast("st.SearchStrategy[IPv6Address]", st.ip_addresses(v=6))
ADDRESSES_V4 = st.sampled_from(NOT_PUBLIC_V4).map(IPv4Address) | ANY_V4
ADDRESSES_V6 = st.sampled_from(NOT_PUBLIC_V6).map(IPv6Address) | ANY_V6
SPELLINGS = ADDRESSES_V4.flatmap(v4_spellings) | ADDRESSES_V6.flatmap(v6_spellings)
FRONTS = ["https://{}", "HTTPS://{}:443", "https://{}:0443", "https://a@{}", "https:{}"]
REARS = ["", "/", "/hook?a=b", "?@8.8.8.8", "\\@8.8.8.8", "#@8.8.8.8", "\t", "%00"]


def addresses_of(host: str) -> list[str]:
    """The addresses that a resolver parses from `host`, without DNS requests."""
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(sockaddr[0]) for *_, sockaddr in found]


def test_the_resolver_accepts_many_spellings() -> None:
    for spelling in ("127.1", "0x7f000001", "017700000001", "127.0.0.1"):
        assert "127.0.0.1" in addresses_of(spelling)


@given(SPELLINGS, st.sampled_from(FRONTS), st.sampled_from(REARS))
@example("127.0.0.1", "https://{}", "/")
@example("8.8.8.8", "https://{}", "/")
def test_no_spelling_of_a_private_address_is_allowed(host: str, front: str, rear: str) -> None:
    try:
        target = PUBLIC.check_url(front.format(host) + rear)
    except UrlRefused:
        return
    # The resolver is the judge: it is what would turn the host into an address.
    for address in addresses_of(target.origin.host):
        PUBLIC.check_address(address)


LOOK_ALIKES = "localhost127.0x1%:[]@\u3002\uff0e\u2024\u00ad\u200b\uff11\u2170\u017f"


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(LOOK_ALIKES)))
@example("\uff11\uff12\uff17\u30020.0.1")
@example("loc\u00adalho\u017ft")
def test_no_allowed_name_is_an_address_or_local_to_a_resolver(name: str) -> None:
    try:
        host = PUBLIC.check_url(f"https://{name}/").origin.host
    except UrlRefused:
        return
    assert host.split(".")[-1] != "localhost"
    for address in addresses_of(host):
        PUBLIC.check_address(address)
