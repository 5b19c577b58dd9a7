from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config import Settings
from app.webhooks.guard import AddressRefused, CheckedUrl, Guard, Origin, UrlRefused
from app.webhooks.request import encode_post

PUBLIC = Guard()
PRIVATE = Guard(allow_private=True)


def listing(*networks: str, allow_private: bool = False) -> Guard:
    return Guard(allow_private, networks=tuple(map(ip_network, networks)))


NEVER = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "169.254.1.1": "link-local",
    "169.254.169.254": "cloud metadata",
    "192.0.0.8": "reserved",
    "192.0.2.1": "documentation",
    "192.88.99.1": "6to4",
    "198.18.0.1": "benchmark",
    "198.19.255.255": "benchmark",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "broadcast",
    "::": "unspecified",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "::127.0.0.1": "IPv4-compatible",
    "::ffff:0:127.0.0.1": "IPv4-translated",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "2001::1": "Teredo",
    "2001:10::1": "reserved",
    "2001:db8::1": "documentation",
    "2002:7f00:1::": "6to4",
    "fe80::1": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "4000::1": "reserved",
    "100::1": "discard",
    # Within networks of ours, or even public.
    "100.100.100.200": "cloud metadata",
    "168.63.129.16": "cloud metadata",
    "192.0.0.192": "cloud metadata",
    "169.254.170.2": "cloud metadata",
    "fd00:ec2::254": "cloud metadata",
    "fd20:ce::254": "cloud metadata",
    "fe80::a9fe:a9fe": "cloud metadata",
    "fe80::a9fe:a9fe%1": "cloud metadata",
}
OURS = {
    "10.0.0.1": "private",
    "100.64.0.1": "carrier",
    "100.127.255.255": "carrier",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.0.1": "private",
    "::1": "loopback",
    "fc00::1": "unique local",
    "fdff::1": "unique local",
}
ANYWHERE = ["8.8.8.8", "100.63.0.1", "100.128.0.1", "172.32.0.1", "223.255.255.255", "2606:4700::1"]


@pytest.mark.parametrize(("address", "kind"), [*NEVER.items(), *OURS.items()])
def test_an_address_that_is_not_public_is_refused_with_its_kind(address: str, kind: str) -> None:
    with pytest.raises(AddressRefused, match=f"{kind}.*allowed is a public address"):
        PUBLIC.check_address(address)


@pytest.mark.parametrize("address", ANYWHERE)
def test_public_addresses_are_allowed(address: str) -> None:
    PUBLIC.check_address(address)
    PRIVATE.check_address(address)


@pytest.mark.parametrize("address", OURS)
def test_private_networks_are_allowed_with_allow_private(address: str) -> None:
    PRIVATE.check_address(address)


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_refused_despite_allow_private(address: str) -> None:
    with pytest.raises(AddressRefused, match="allowed is a public or private address"):
        PRIVATE.check_address(address)


@pytest.mark.parametrize(
    ("network", "within", "beyond"),
    [
        ("10.1.0.0/16", "10.1.255.255", "10.2.0.0"),
        ("127.0.0.1/32", "127.0.0.1", "127.0.0.2"),
        ("169.254.0.0/16", "169.254.1.1", "127.0.0.1"),
        ("fd12:3456::/32", "fd12:3456::1", "fd12:3457::1"),
        ("64:ff9b::/96", "64:ff9b::808:808", "::ffff:8.8.8.8"),
    ],
)
def test_a_listed_network_is_allowed_although_it_is_not_public(
    network: str, within: str, beyond: str
) -> None:
    guard = listing(network)
    guard.check_address(within)
    guard.check_address("8.8.8.8")
    with pytest.raises(AddressRefused, match="allowed is a public address, or one in a network"):
        guard.check_address(beyond)


@pytest.mark.parametrize("network", ["10.0.0.0/8", "fd12:3456::/32"])
def test_urls_with_a_listed_address_are_allowed_others_refused(network: str) -> None:
    guard = listing(network)
    allowed, refused = ("10.1.2.3", "[fd12:3456::1]")[:: 1 if "." in network else -1]
    assert guard.check_url(f"https://{allowed}/").origin.host == allowed.strip("[]")
    for url in (f"https://{refused}/", f"http://{allowed}/", "https://localhost/"):
        with pytest.raises(UrlRefused):
            guard.check_url(url)


def test_a_refusal_does_not_show_the_listed_networks() -> None:
    with pytest.raises(AddressRefused) as refusal:
        listing("10.7.0.0/16", allow_private=True).check_address("169.254.1.1")
    assert "allowed is a public or private address, or one in a network" in str(refusal.value)
    assert "10.7" not in str(refusal.value)


METADATA = [address for address, kind in NEVER.items() if kind == "cloud metadata"]
EVERYTHING = listing("0.0.0.0/0", "::/0", "::ffff:0:0/96", "64:ff9b::/96", allow_private=True)


@pytest.mark.parametrize("address", METADATA)
def test_a_metadata_address_is_allowed_only_if_itself_is_listed(address: str) -> None:
    with pytest.raises(AddressRefused, match="cloud metadata"):
        EVERYTHING.check_address(address)
    listing(address.partition("%")[0]).check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "2002:a9fe:a9fe::",
    ],
)
def test_no_listed_network_allows_an_embedded_metadata_address(address: str) -> None:
    with pytest.raises(AddressRefused, match="cloud metadata"):
        EVERYTHING.check_address(address)


def test_a_listed_network_allows_nothing_of_the_other_family() -> None:
    with pytest.raises(AddressRefused, match="private"):
        listing("::/0").check_address("::ffff:10.0.0.1")
    with pytest.raises(AddressRefused, match="IPv4-mapped"):
        listing("0.0.0.0/0").check_address("::ffff:10.0.0.1")


@pytest.mark.parametrize(
    ("networks", "is_allowed"),
    [(["127.0.0.0/8"], True), (["::1/128"], True), (["127.0.0.2/32", "10.0.0.0/8"], False)],
)
def test_localhost_is_allowed_if_loopback_is(networks: list[str], is_allowed: bool) -> None:
    for url in ("https://localhost/", "https://a.LOCALHOST./"):
        if is_allowed:
            listing(*networks).check_url(url)
        else:
            with pytest.raises(UrlRefused, match="url host"):
                listing(*networks).check_url(url)


def test_plain_http_can_be_allowed_without_private_addresses() -> None:
    guard = Guard(allow_http=True)
    assert guard.check_url("http://example.com/").origin == Origin("http", "example.com", 80)
    for url in ("http://127.0.0.1/", "http://localhost/", "http://[fd00::1]/"):
        with pytest.raises(UrlRefused, match="allowed is a name or a public address"):
            guard.check_url(url)
    with pytest.raises(UrlRefused, match="allowed is https or http"):
        guard.check_url("ftp://example.com/")


@pytest.mark.parametrize(
    ("environ", "guard"),
    [
        ({}, Guard()),
        ({"REWIND_ALLOW_PRIVATE_TARGETS": "true"}, Guard(allow_private=True)),
        ({"REWIND_ALLOW_HTTP_TARGETS": "true"}, Guard(allow_http=True)),
        (
            {"REWIND_ALLOWED_NETWORKS": "10.1.0.0/16, fd00::/8"},
            listing("10.1.0.0/16", "fd00::/8"),
        ),
    ],
)
def test_a_guard_follows_the_settings(environ: dict[str, str], guard: Guard) -> None:
    assert Guard.of(Settings.load(environ)) == guard


@given(st.ip_addresses())
def test_allowed_addresses_are_global_in_the_standard_library(
    address: IPv4Address | IPv6Address,
) -> None:
    try:
        PUBLIC.check_address(address)
    except AddressRefused:
        return
    assert address.is_global
    assert not address.is_multicast


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "2002::"]))
def test_no_embedded_private_address_is_allowed(inner: IPv4Address, prefix: str) -> None:
    shift = 80 if prefix == "2002::" else 0
    with pytest.raises(AddressRefused):
        PUBLIC.check_address(IPv6Address(int(IPv6Address(prefix)) | int(inner) << shift))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", CheckedUrl(Origin("https", "example.com", 443), "/")),
        ("HTTPS://Example.COM:443/", CheckedUrl(Origin("https", "example.com", 443), "/")),
        ("https://example.com.:99/a?b=c", CheckedUrl(Origin("https", "example.com", 99), "/a?b=c")),
        ("https://example.com?q", CheckedUrl(Origin("https", "example.com", 443), "/?q")),
        ("https://ü.example/x", CheckedUrl(Origin("https", "xn--tda.example", 443), "/x")),
        ("https://8.8.8.8/", CheckedUrl(Origin("https", "8.8.8.8", 443), "/")),
        ("https://[2606:4700::0001]:1/", CheckedUrl(Origin("https", "2606:4700::1", 1), "/")),
        ("https://1password.example/", CheckedUrl(Origin("https", "1password.example", 443), "/")),
    ],
)  # fmt: skip
def test_a_url_is_parsed(url: str, target: CheckedUrl) -> None:
    assert PUBLIC.check_url(url) == target


@pytest.mark.parametrize(
    ("origin", "header"),
    [
        (Origin("https", "example.com", 443), "example.com"),
        (Origin("http", "example.com", 443), "example.com:443"),
        (Origin("https", "2606:4700::1", 8443), "[2606:4700::1]:8443"),
    ],
)
def test_the_host_header_omits_the_default_port(origin: Origin, header: str) -> None:
    assert origin.header == header


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("http://example.com/", "url scheme"),
        ("ftp://example.com/", "url scheme"),
        ("//example.com/", "url scheme"),
        ("example.com", "url scheme"),
        ("", "url scheme"),
        ("https://user@example.com/", "url user"),
        ("https://user:word@example.com/", "url user"),
        ("https://example.com/#part", "url fragment"),
        ("https://example.com/#", "url fragment"),
        ("https://example.com:0/", "url port"),
        ("https://example.com:65536/", "url port"),
        ("https://example.com:x/", "url port"),
        ("https:///path", "url host"),
        ("https://exa mple.com/", "url"),
        ("https://example.com\\@evil.example/", "url"),
        ("https://example.com/\r\nx: y", "url"),
        ("https://exa\tmple.com/", "url"),
        ("https://example.com/ä", "url path"),
        ("https://example.com/" + "a" * 2048, "url length"),
        ("https://-a.example/", "url host"),
        ("https://a..example/", "url host"),
        ("https://" + "a" * 64 + ".example/", "url host"),
        ("https://" + "a." * 130 + "example/", "url host"),
        ("https://exa%6dple.com/", "url host"),
        ("https://[::1/", "url"),
        ("https://[fe80::1%25eth0]/", "url host"),
        ("https://[v1.x]/", "url host"),
        ("https://10.0.0.1/", "url host"),
        ("https://[::1]/", "url host"),
        ("https://[::ffff:10.0.0.1]/", "url host"),
        ("https://localhost/", "url host"),
        ("https://LOCALHOST./", "url host"),
        ("https://a.localhost/", "url host"),
        # Spellings of 127.0.0.1 that resolvers understand.
        ("https://127.1/", "url host"),
        ("https://2130706433/", "url host"),
        ("https://0x7f000001/", "url host"),
        ("https://0177.0.0.1/", "url host"),
        ("https://127.0.0.0x1/", "url host"),
        ("https://127.0.0.1./", "url host"),
        ("https://\uff11\uff12\uff17.\uff10.\uff10.\uff11/", "url host"),
        ("https://127\u30020\u30020\u30021/", "url host"),
    ],
)
def test_an_invalid_url_is_refused_with_its_field(url: str, field: str) -> None:
    with pytest.raises(UrlRefused) as refusal:
        PUBLIC.check_url(url)
    assert refusal.value.field == field
    assert refusal.value.allowed in str(refusal.value)


def test_a_refusal_does_not_contain_the_password() -> None:
    with pytest.raises(UrlRefused) as refusal:
        PUBLIC.check_url("https://user:hunter2@example.com/")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:8000/", "http://127.0.0.1:1/", "https://[::1]/", "http://my_service/"]
)
def test_allow_private_includes_plain_http(url: str) -> None:
    PRIVATE.check_url(url)
    with pytest.raises(UrlRefused):
        PUBLIC.check_url(url)


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "ftp://localhost/", "http://0.0.0.0/"])
def test_allow_private_does_not_allow_every_address(url: str) -> None:
    with pytest.raises(UrlRefused):
        PRIVATE.check_url(url)


@given(
    st.one_of(st.just("https://example.com"), st.just("")),
    st.text(st.sampled_from("ab/:.@#?[]%\r\n\t \\é=&1"), max_size=30),
)
def test_no_url_injects_text_into_a_request(prefix: str, rest: str) -> None:
    try:
        target = PUBLIC.check_url(prefix + rest)
    except UrlRefused:
        return
    lines = encode_post(target, {}, b"").split(b"\r\n")
    assert len(lines) == 5
    assert lines[0].count(b" ") == 2
    assert lines[1] == b"host: " + target.origin.header.encode()


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("http://example.com/", ["REWIND_ALLOW_HTTP_TARGETS"]),
        ("https://10.0.0.1/", ["REWIND_ALLOW_PRIVATE_TARGETS", "REWIND_ALLOWED_NETWORKS"]),
        ("https://localhost/", ["REWIND_ALLOW_PRIVATE_TARGETS", "REWIND_ALLOWED_NETWORKS"]),
        ("https://169.254.169.254/", []),
        ("https://0.0.0.0/", []),
        ("ftp://example.com/", []),
    ],
)
def test_a_refused_url_names_the_settings_that_would_allow_it(
    url: str, settings: list[str]
) -> None:
    with pytest.raises(UrlRefused) as refusal:
        PUBLIC.check_url(url)
    assert [name for name in settings if name in refusal.value.allowed] == settings
    assert ("REWIND_" in refusal.value.allowed) == bool(settings)
