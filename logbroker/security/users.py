"""The users that SASL authenticates, with their salted credentials; immutable."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from logbroker.errors import InvalidRequest
from logbroker.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    ScramCredential,
    ScramMechanism,
)

VERSION: Final = 1

USERS_MAX: Final = 1_000
"""The number of users of a cluster; each change writes all of them."""

DEFAULT_ITERATIONS: Final = 8_192
"""Iterations of credentials that `logbroker users` creates."""

Credentials = Mapping[ScramMechanism, ScramCredential]


class Users:
    """The users by name; `with_credential` and `without_credential` return changed copies."""

    __slots__ = ("_by_name",)

    def __init__(self, by_name: Mapping[str, Credentials] = MappingProxyType({})) -> None:
        self._by_name = by_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Users) and self._by_name == other._by_name

    def __hash__(self) -> int:
        return hash(frozenset(self._by_name))

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._by_name))

    def credentials(self, name: str) -> Credentials:
        """Return the credentials of a user, by mechanism; none if it is unknown."""
        return self._by_name.get(name, {})

    def with_credential(
        self, name: str, mechanism: ScramMechanism, credential: ScramCredential
    ) -> "Users":
        """Return the users with one credential added or replaced.

        Raises:
            InvalidRequest: there would be more than `USERS_MAX` users.
        """
        if name not in self._by_name and len(self._by_name) >= USERS_MAX:
            raise InvalidRequest(f"the cluster has {USERS_MAX} users, the maximum")
        credentials = {**self.credentials(name), mechanism: credential}
        return Users({**self._by_name, name: credentials})

    def without_credential(self, name: str, mechanism: ScramMechanism) -> "Users":
        """Return the users without one credential; a user without any is removed."""
        left = {key: each for key, each in self.credentials(name).items() if key != mechanism}
        others = {key: each for key, each in self._by_name.items() if key != name}
        return Users({**others, name: left} if left else others)


NO_USERS: Final = Users()


def format_users(users: Users) -> bytes:
    """Encode the users as JSON, one line each: `{"version": 1, "users": {NAME: {MECHANISM: …}}}`.

    A credential has the fields and encodings that Kafka's have in ZooKeeper.
    """
    lines = [
        f"{json.dumps(name)}: "
        + json.dumps(
            {
                mechanism.sasl_name: _fields(credential)
                for mechanism, credential in users.credentials(name).items()
            }
        )
        for name in users
    ]
    return (f'{{"version": {VERSION}, "users": {{\n' + ",\n".join(lines) + "\n}}\n").encode()


def parse_users(content: bytes) -> Users:
    """Decode users; an empty content has none.

    Raises:
        ValueError: the content is malformed, or has another version.
    """
    if not content:
        return NO_USERS
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise ValueError(f"unsupported version {document['version']!r}; allowed: {VERSION}")
        return Users(
            {
                str(name): {
                    _mechanism(mechanism): _credential(fields)
                    for mechanism, fields in credentials.items()
                }
                for name, credentials in document["users"].items()
            }
        )
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise ValueError(f"a field is missing or invalid: {error!r}") from None


def _fields(credential: ScramCredential) -> dict[str, str | int]:
    return {
        "salt": base64.b64encode(credential.salt).decode(),
        "stored_key": base64.b64encode(credential.stored_key).decode(),
        "server_key": base64.b64encode(credential.server_key).decode(),
        "iterations": credential.iterations,
    }


def _mechanism(name: str) -> ScramMechanism:
    return ScramMechanism[name.replace("-", "_")]


def _credential(fields: Mapping[str, Any]) -> ScramCredential:
    credential = ScramCredential(
        salt=base64.b64decode(fields["salt"]),
        stored_key=base64.b64decode(fields["stored_key"]),
        server_key=base64.b64decode(fields["server_key"]),
        iterations=int(fields["iterations"]),
    )
    if not ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX:
        raise ValueError(f"iterations is {credential.iterations}")
    if not 0 < len(credential.salt) <= SALT_BYTES_MAX:
        raise ValueError(f"salt has {len(credential.salt)} bytes")
    return credential
