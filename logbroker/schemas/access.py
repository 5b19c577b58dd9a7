"""Which requests a registry accepts: users with passwords and roles, and names of its host."""

import base64
import binascii
import hmac
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from logbroker.errors import ConfigurationError
from logbroker.file_version import file_version
from logbroker.listeners import is_loopback
from logbroker.schemas.rest.errors import RequestRejected

REREAD_S: Final = 1.0
"""How often the file of users is checked for changes."""

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_log: Final = logging.getLogger(__name__)

_CHALLENGE: Final = {"www-authenticate": 'Basic realm="logbroker registry", charset="UTF-8"'}


class Role(StrEnum):
    """What a user may do."""

    READ = "read"
    WRITE = "write"
    """Also register, delete and configure."""


class User(NamedTuple):
    """A user of the registry."""

    password: str
    role: Role


class UsersFile:
    """The users of a file with lines `NAME: PASSWORD, ROLE`; changes of the file take effect.

    A changed file that is invalid is logged, and the previous users remain.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file.

        Raises:
            ConfigurationError: it cannot be read, or a line is invalid.
        """
        self._path = path
        self._clock = clock
        self._version = file_version(path)
        self._users = read_users(path)
        self._checked_s = clock()

    def authenticate(self, authorization: str) -> str | None:
        """The name of the user whose password is in a header of basic authentication (RFC 7617)."""
        name, password = _credentials(authorization)
        user = self._current().get(name)
        expected = "" if user is None else user.password
        is_right = hmac.compare_digest(password.encode(), expected.encode())
        return name if is_right and user is not None else None

    def role(self, name: str) -> Role:
        """The role of a user; READ for one who was removed meanwhile."""
        user = self._users.get(name)
        return Role.READ if user is None else user.role

    def _current(self) -> Mapping[str, User]:
        if self._clock() - self._checked_s >= REREAD_S:
            self._checked_s = self._clock()
            self._reread()
        return self._users

    def _reread(self) -> None:
        version = file_version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._users = read_users(self._path)
        except ConfigurationError as error:
            _log.error("users not changed reason=%s", error)


class RequestAccess:
    """Decides which requests are accepted; without users and hosts, all of them."""

    def __init__(
        self, users: UsersFile | None = None, allowed_hosts: Collection[str] | None = None
    ) -> None:
        self._users = users
        self._allowed_hosts = allowed_hosts

    def expect_known_host(self, host: str) -> None:
        """Check the header `Host`: a web page could name this server after its own domain.

        Raises:
            RequestRejected: 421 if the name is not an allowed one.
        """
        if self._allowed_hosts is not None and _host_name(host) not in self._allowed_hosts:
            raise RequestRejected(421, f"The host {host!r} is not allowed; see --allowed-hosts.")

    def expect_permission(self, authorization: str, *, is_change: bool) -> str | None:
        """Return the name of the user who sends a request; None without users.

        Raises:
            RequestRejected: 401 without the name and password of a user, 403 if the user may not
                change anything.
        """
        if self._users is None:
            return None
        name = self._users.authenticate(authorization)
        if name is None:
            raise RequestRejected(401, "The user or the password is missing or wrong.", _CHALLENGE)
        if is_change and self._users.role(name) is not Role.WRITE:
            raise RequestRejected(403, f"The user {name!r} may only read.")
        return name


def read_users(path: Path) -> dict[str, User]:
    """The users of a file.

    Raises:
        ConfigurationError: it cannot be read, or one line for each problem in it.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the users file {path}: {error}") from error
    users: dict[str, User] = {}
    problems = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        password, _, role = rest.rpartition(",")
        name, password, role = name.strip(), password.strip(), role.strip()
        if not name or not password or role not in tuple(Role):
            # The line is not quoted: it may contain a password.
            roles = ", ".join(Role)
            problems.append(
                f"{path}:{number}: expected NAME: PASSWORD, ROLE with a role of {roles}"
            )
        elif name in users:
            problems.append(f"{path}:{number}: the user {name!r} is listed twice")
        else:
            users[name] = User(password, Role(role))
    ConfigurationError.raise_if_any(problems)
    if not users:
        raise ConfigurationError(f"the users file {path} lists no user")
    return users


def allowed_hosts(listen_host: str, further: Iterable[str]) -> frozenset[str] | None:
    """The names in `Host` that are accepted; None for all.

    On loopback these are the names of loopback and `further` ones; elsewhere `further`, if any.
    """
    named = frozenset(each.strip().lower() for each in further if each.strip())
    if is_loopback(listen_host):
        return named | LOOPBACK_HOSTS | {listen_host.lower()}
    return named or None


def _host_name(host: str) -> str:
    """The name in a header `Host`, without the port and the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _credentials(authorization: str) -> tuple[str, str]:
    """The name and the password of a header `Authorization`; empty if there are none."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
