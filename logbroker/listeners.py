"""Listeners of a broker, as Kafka names them: a name, a security protocol and two addresses."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

ANY_HOST: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, never bound
"""Listen addresses that clients cannot connect to."""

PORT_MAX: Final = 65_535

_NAME: Final = re.compile(r"[A-Z0-9][A-Z0-9_.-]{0,63}")
_ENDPOINT: Final = re.compile(r"(?P<name>[^:/]*)://(?P<host>\[[^\]]*\]|[^:\[\]/]*):(?P<port>\d+)")


class SecurityProtocol(StrEnum):
    """What the connections of a listener carry: TLS or not, SASL authentication or not."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL before any other request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class ListenerConfig(NamedTuple):
    """One listener; port 0 is chosen by the system, `advertised` is where clients reach it.

    Without an advertised host or port, that of the listener is advertised.
    """

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None


class ListenerAddress(NamedTuple):
    """The address at which clients reach a listener of a broker."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(
    listeners: str, protocols: str | None = None, advertised: str | None = None
) -> tuple[ListenerConfig, ...]:
    """Parse `listeners`, `listener.security.protocol.map` and `advertised.listeners` of Kafka.

    A listener whose name is a security protocol needs no entry in the map. One that is not
    advertised explicitly is advertised at its own address.

    Raises:
        ValueError: one line for each problem; it names the setting and the value.

    Source: Kafka, `KafkaConfig`, `SocketServerConfigs`.
    """
    problems: list[str] = []
    bound = _endpoints("listeners", listeners, problems)
    announced = _endpoints("advertised_listeners", advertised or "", problems)
    mapped = _protocol_map(protocols or "", problems)
    problems += [
        f"advertised_listeners names {name}, which is not in listeners ({', '.join(bound)})"
        for name in announced.keys() - bound.keys()
    ]
    problems += [
        f"advertised_listeners has port 0 for {name}; allowed is 1 to {PORT_MAX}"
        for name, (_, port) in announced.items()
        if port == 0
    ]
    problems += [
        f"listener_security_protocol_map has no entry for listener {name}; allowed are "
        f"{', '.join(SecurityProtocol)}"
        for name in bound.keys() - mapped.keys()
    ]
    if not bound and not problems:
        problems.append("listeners is empty; expected NAME://HOST:PORT")
    if problems:
        raise ValueError("\n".join(problems))
    return tuple(
        ListenerConfig(name, mapped[name], host, port, *announced.get(name, (None, None)))
        for name, (host, port) in bound.items()
    )


def parse_address(text: str, protocols: Mapping[str, str]) -> ListenerAddress:
    """Parse one endpoint of a broker's registration.

    Raises:
        ValueError: the text is not an endpoint, or its protocol is unknown.
    """
    problems: list[str] = []
    ((name, (host, port)),) = _endpoints("endpoints", text, problems).items() or (("", ("", 0)),)
    if problems or not name:
        raise ValueError("; ".join(problems) or f"{text!r} is not an endpoint")
    return ListenerAddress(name, SecurityProtocol(protocols.get(name, name)), host, port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_unauthenticated(
    listeners: Sequence[ListenerConfig], *, has_required_certificate: bool
) -> list[str]:
    """Return the listeners that admit everyone who reaches them from another machine, one a line.

    With `has_required_certificate`, clients of SSL listeners authenticate with a certificate.
    """
    return [
        f"listener {each.name} at {each.host!r} admits other machines without authentication: use "
        "SASL_SSL (--listeners), or SSL with --ssl-client-auth=required; in a private network "
        "allow it with --insecure"
        for each in listeners
        if not is_loopback(each.host)
        and not each.protocol.has_sasl
        and not (has_required_certificate and each.protocol.has_tls)
    ]


def find_problems(listeners: Sequence[ListenerConfig]) -> list[str]:
    """Return the listeners that clients could not reach, one line each."""
    return [
        f"advertised_listeners has no address for {each.name}; with host {each.host!r} clients "
        "need an address to connect to"
        for each in listeners
        if each.host in ANY_HOST and each.advertised_host is None
    ]


def _endpoints(setting: str, text: str, problems: list[str]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ENDPOINT.fullmatch(part)
        name = match["name"].upper() if match else ""
        if match is None or not _NAME.fullmatch(name) or int(match["port"]) > PORT_MAX:
            problems.append(f"{setting} has {part!r}; expected NAME://HOST:PORT")
        elif name in found:
            problems.append(f"{setting} has {name} twice")
        else:
            found[name] = match["host"].strip("[]"), int(match["port"])
    return found


def _protocol_map(text: str, problems: list[str]) -> dict[str, SecurityProtocol]:
    mapped = {each.value: each for each in SecurityProtocol}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = part.partition(":")
        try:
            mapped[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            problems.append(
                f"listener_security_protocol_map has {part!r}; expected NAME:PROTOCOL with one of "
                f"{', '.join(SecurityProtocol)}"
            )
    return mapped
