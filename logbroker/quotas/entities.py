"""The quotas of users, client ids and IP addresses; immutable.

Source: KIP-13, KIP-55 (precedence), KIP-257, KIP-546, KIP-599, KIP-612 (addresses).
"""

import ipaddress
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from logbroker.errors import InvalidRequest

DEFAULT: Final = ""
"""The name of the entity for users, client ids or addresses without a quota of their own."""

NAME_CHARS_MAX: Final = 1_024

ENTITIES_MAX: Final = 2_000
"""The entities of a cluster with quotas; each change writes all of them."""

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class QuotaKey(StrEnum):
    """What a quota limits, by Kafka's names."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    """Bytes of Produce requests per second."""
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    """Bytes of Fetch responses per second."""
    REQUEST_PERCENTAGE = "request_percentage"
    """The time of one thread, in percent, that requests may take."""
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    """Partitions created and deleted per second."""
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    """Connections that an IP address opens per second; the other quotas are not for addresses."""


WHOLE_MAX: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: INT64_MAX,
    QuotaKey.CONSUMER_BYTE_RATE: INT64_MAX,
    QuotaKey.CONNECTION_CREATION_RATE: INT32_MAX,
}
"""Quotas whose values have no fraction, and the largest value."""


class QuotaEntity(NamedTuple):
    """A user, a client id, or both; or an IP address.

    None is absent, and `DEFAULT` stands for the others.
    """

    user: str | None
    client_id: str | None
    ip: str | None = None


class QuotaLimit(NamedTuple):
    """A limit, with the user and client id that share it; None is any."""

    value: float
    user: str | None
    client_id: str | None


QuotaValues = Mapping[QuotaKey, float]


class Quotas:
    """The quota values of each entity; `with_values` returns a changed copy."""

    __slots__ = ("_by_entity",)

    def __init__(self, by_entity: Mapping[QuotaEntity, QuotaValues] = MappingProxyType({})) -> None:
        self._by_entity = by_entity

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotas) and self._by_entity == other._by_entity

    def __hash__(self) -> int:
        return hash(frozenset(self._by_entity))

    def __len__(self) -> int:
        return len(self._by_entity)

    def __iter__(self) -> Iterator[QuotaEntity]:
        return iter(sorted(self._by_entity, key=_order))

    def values(self, entity: QuotaEntity) -> QuotaValues:
        """Return the quotas of an entity itself; none if it is unknown."""
        return self._by_entity.get(entity, {})

    def with_values(self, entity: QuotaEntity, values: QuotaValues) -> "Quotas":
        """Return the quotas with those of one entity replaced; without values it is removed.

        Raises:
            InvalidRequest: there would be more than `ENTITIES_MAX` entities.
        """
        changed = {key: each for key, each in self._by_entity.items() if key != entity}
        if values:
            if len(changed) >= ENTITIES_MAX:
                raise InvalidRequest(
                    f"the cluster has quotas for {len(changed)} entities; "
                    f"allowed: up to {ENTITIES_MAX}"
                )
            changed[entity] = MappingProxyType(dict(values))
        return Quotas(changed)

    def find_limit(self, key: QuotaKey, user: str, client_id: str) -> QuotaLimit | None:
        """Return the limit of the most specific entity that covers a client, if any has one.

        A user's own entities precede the default user's, which precede those of client ids alone.
        """
        for entity, sharing in (
            (QuotaEntity(user, client_id), (user, client_id)),
            (QuotaEntity(user, DEFAULT), (user, client_id)),
            (QuotaEntity(user, None), (user, None)),
            (QuotaEntity(DEFAULT, client_id), (user, client_id)),
            (QuotaEntity(DEFAULT, DEFAULT), (user, client_id)),
            (QuotaEntity(DEFAULT, None), (user, None)),
            (QuotaEntity(None, client_id), (None, client_id)),
            (QuotaEntity(None, DEFAULT), (None, client_id)),
        ):
            value = self.values(entity).get(key)
            if value is not None:
                return QuotaLimit(value, *sharing)
        return None

    def find_connection_rate(self, ip: str) -> float | None:
        """Return how many connections an address may open per second, if that is limited."""
        for name in (ip, DEFAULT):
            values = self.values(QuotaEntity(None, None, name))
            if values:
                return values[QuotaKey.CONNECTION_CREATION_RATE]
        return None


NO_QUOTAS: Final = Quotas()


def check_entity(entity: QuotaEntity) -> None:
    """Reject an entity without any part, or with parts that do not go together or are too long.

    Raises:
        InvalidRequest: the entity is not allowed.
    """
    names = [name for name in entity if name is not None]
    if not names:
        raise InvalidRequest("the entity is empty; allowed: user, client-id or both; or ip")
    if entity.ip is not None and len(names) > 1:
        raise InvalidRequest("the entity has an ip and other parts; allowed: ip alone")
    for name in names:
        if len(name) > NAME_CHARS_MAX:
            raise InvalidRequest(
                f"an entity name has {len(name)} characters; allowed: up to {NAME_CHARS_MAX}"
            )


def check_quota(entity: QuotaEntity, key: QuotaKey, value: float) -> None:
    """Reject a quota that the entity cannot have, or a value that is no limit.

    Raises:
        InvalidRequest: the quota or its value is not allowed.
    """
    if (entity.ip is not None) != (key is QuotaKey.CONNECTION_CREATION_RATE):
        raise InvalidRequest(
            f"{key} is not a quota of this entity; allowed: {QuotaKey.CONNECTION_CREATION_RATE} of "
            "an ip, the others of users and client ids"
        )
    if not (math.isfinite(value) and value > 0):
        raise InvalidRequest(f"{key} is {value}; allowed: more than 0")
    largest = WHOLE_MAX.get(key)
    if largest is not None and (value > largest or value != round(value)):
        raise InvalidRequest(f"{key} is {value}; allowed: a whole number up to {largest}")


def parse_ip(text: str) -> str:
    """Return an IP address as connections have it.

    Raises:
        InvalidRequest: the text is not an address; names of hosts are not resolved.
    """
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise InvalidRequest(f"the ip is {text!r}; allowed: an IPv4 or IPv6 address") from None


def parse_key(name: str) -> QuotaKey:
    """Return the quota of this name.

    Raises:
        InvalidRequest: the quota is unknown.
    """
    try:
        return QuotaKey(name)
    except ValueError:
        allowed = ", ".join(QuotaKey)
        raise InvalidRequest(f"unknown quota {name!r}; allowed: {allowed}") from None


def _order(entity: QuotaEntity) -> tuple[bool | str, ...]:
    user, client_id, ip = entity
    of_client = user is None, user or "", client_id is not None, client_id or ""
    return ip is not None, ip or "", *of_client
