"""How clients of ZooKeeper authenticate, whom they admit to their nodes, and TLS."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from kazoo.security import CREATOR_ALL_ACL

from logbroker.errors import ConfigurationError
from logbroker.property_file import read_property_file

_BOOLEANS: Final = {"true": True, "false": False}

_HOST_CHECKS: Final = {"HTTPS": True, "": False}
"""Values of Kafka's `zookeeper.ssl.endpoint.identification.algorithm`."""


class ZooKeeperSecurity(NamedTuple):
    """The security of a client's connections and nodes; by default there is none.

    The names of the properties are Kafka's; those of ZooKeeper's scheme `digest` begin with
    `zookeeper.digest`.
    """

    digest: str | None = None
    """`USER:PASSWORD` for the scheme `digest`."""
    creator_only: bool = False
    """Whether only this user may read and change the nodes that are created."""
    has_tls: bool = False
    checks_host_name: bool = True
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    @property
    def client_options(self) -> dict[str, Any]:
        """The arguments of `KazooClient`."""
        return {
            "auth_data": [("digest", self.digest)] if self.digest else [],
            "default_acl": CREATOR_ALL_ACL if self.creator_only else None,
            "use_ssl": self.has_tls,
            "check_hostname": self.has_tls and self.checks_host_name,
            "ca": self.ca,
            "certfile": self.certificate,
            "keyfile": self.key,
        }


NO_SECURITY: Final = ZooKeeperSecurity()


def read_zookeeper_config(path: Path | None) -> ZooKeeperSecurity:
    """The security that a file of properties describes; none without a file.

    Raises:
        ConfigurationError: the file cannot be read, or one line for each problem in it.
    """
    if path is None:
        return NO_SECURITY
    properties = read_property_file("zookeeper config", path)
    problems = list(_problems(properties))
    if problems:
        raise ConfigurationError("\n".join(f"zookeeper config {path}: {each}" for each in problems))
    user = properties.get(_USER)
    return ZooKeeperSecurity(
        digest=None if user is None else f"{user}:{properties[_PASSWORD]}",
        creator_only=_BOOLEANS[properties.get(_SET_ACL, "false")],
        has_tls=_BOOLEANS[properties.get(_TLS, "false")],
        checks_host_name=_HOST_CHECKS[properties.get(_HOST_CHECK, "HTTPS")],
        ca=properties.get(_CA),
        certificate=properties.get(_CERTIFICATE),
        key=properties.get(_KEY),
    )


_USER: Final = "zookeeper.digest.username"
_PASSWORD: Final = "zookeeper.digest.password"  # noqa: S105  # the name of the property
_SET_ACL: Final = "zookeeper.set.acl"
_TLS: Final = "zookeeper.ssl.client.enable"
_HOST_CHECK: Final = "zookeeper.ssl.endpoint.identification.algorithm"
_CA: Final = "zookeeper.ssl.truststore.location"
_CERTIFICATE: Final = "zookeeper.ssl.keystore.location"
_KEY: Final = "zookeeper.ssl.key.location"

PROPERTIES: Final = (*(_USER, _PASSWORD, _SET_ACL, _TLS, _HOST_CHECK, _CA, _CERTIFICATE, _KEY),)


def _problems(properties: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(properties.keys() - set(PROPERTIES)):
        yield f"{name} is unknown; allowed: {', '.join(PROPERTIES)}"
    if (_USER in properties) != (_PASSWORD in properties):
        yield f"{_USER} and {_PASSWORD} are used together"
    if ":" in properties.get(_USER, ""):
        yield f"{_USER} contains a colon, which separates it from the password"
    for name, allowed in ((_SET_ACL, _BOOLEANS), (_TLS, _BOOLEANS), (_HOST_CHECK, _HOST_CHECKS)):
        if name in properties and properties[name] not in allowed:
            values = ", ".join(value or "nothing" for value in allowed)
            yield f"{name} is {properties[name]!r}; allowed: {values}"
    if properties.get(_SET_ACL) == "true" and _USER not in properties:
        yield f"{_SET_ACL} is true without {_USER}: no client could use the nodes"
    for name in (_CA, _CERTIFICATE, _KEY):
        if name in properties and not Path(properties[name]).is_file():
            yield f"{name} is {properties[name]!r}, which is no file"
