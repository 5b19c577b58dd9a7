"""Those who show no good key, counted by where they come from: guessing is bounded."""

import time
from ipaddress import ip_address, ip_network
from typing import Final

from starlette.types import Scope

from app.api.quotas import Quotas, Standing

CALLERS_MAX: Final = 10_000
"""Callers that are counted at a time, each at about 200 bytes."""

_IPV6_NETWORK_BITS: Final = 64


class Strangers:
    """Counts what came without a good key, `limit` of them a minute from each place."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._quotas = Quotas(CALLERS_MAX)

    def standing(self, scope: Scope) -> Standing:
        """Where the place that a request comes from stands."""
        return self._quotas.standing(_network(scope), self._limit, time.monotonic())

    def count(self, scope: Scope) -> None:
        """Count one more of its kind."""
        self._quotas.take(_network(scope), self._limit, time.monotonic())


def _network(scope: Scope) -> str:
    """Where the request comes from; of IPv6 the network, in which one host has any address."""
    client = scope.get("client")
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return "unknown"
    if address.version == 4:
        return str(address)
    return str(ip_network((address, _IPV6_NETWORK_BITS), strict=False))
