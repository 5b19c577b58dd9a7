"""The meters of clients with quotas, and the throttle times that follow from them.

Clients that share a limit share its meter. Nothing here locks: one thread uses the meters.
"""

from dataclasses import dataclass, field
from typing import Final, TypeVar

from logbroker.quotas.entities import NO_QUOTAS, QuotaKey, Quotas
from logbroker.quotas.rates import FULL_SAMPLES_MIN, SAMPLE_S, Rate, TokenBucket

REQUEST_THROTTLE_S_MAX: Final = SAMPLE_S
"""The longest throttle time of `request_percentage`, as in Kafka."""

CONNECTION_THROTTLE_S_MAX: Final = SAMPLE_S
"""After this time a refused connection is closed, as in Kafka."""

THROTTLE_MS_MAX: Final = 2**31 - 1

METERS_MAX: Final = 10_000
"""Clients may send any client id, or have many addresses; above this number, idle and then the
oldest meters go."""


def milliseconds(throttle_s: float) -> int:
    """Return a throttle time as the protocol has it."""
    return min(round(throttle_s * 1000), THROTTLE_MS_MAX)


@dataclass(slots=True)
class ThrottleCounts:
    """The throttled requests or connections, and the sum of their throttle times, of each quota."""

    requests: dict[QuotaKey, int] = field(default_factory=lambda: dict.fromkeys(QuotaKey, 0))
    seconds: dict[QuotaKey, float] = field(default_factory=lambda: dict.fromkeys(QuotaKey, 0.0))

    def add(self, key: QuotaKey, throttle_s: float) -> float:
        """Count a request or connection if it is throttled; returns its throttle time."""
        if throttle_s > 0:
            self.requests[key] += 1
            self.seconds[key] += throttle_s
        return throttle_s


class RateMeter:
    """A rate with its limit."""

    __slots__ = ("limit", "rate")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.rate = Rate()

    def record(self, amount: float, now_s: float) -> float:
        """Add an amount; returns the throttle time that follows."""
        self.rate.record(amount, now_s)
        return self.rate.throttle_s(self.limit, now_s)

    def throttle_s(self, now_s: float) -> float:
        """Return the throttle time of what was recorded so far."""
        return self.rate.throttle_s(self.limit, now_s)

    def is_unused(self, now_s: float) -> bool:
        """Return whether a new meter would do the same."""
        return self.rate.is_idle(now_s)


class MutationMeter:
    """A token bucket with its limit."""

    __slots__ = ("bucket", "limit")

    def __init__(self, limit: float, now_s: float) -> None:
        self.limit = limit
        self.bucket = TokenBucket(limit, now_s)

    def is_unused(self, now_s: float) -> bool:
        """Return whether a new meter would do the same."""
        return self.bucket.is_full(self.limit, now_s)


class ClientMeters:
    """The meters of one user and client id; None where it has no limit."""

    __slots__ = ("_counts", "_fetch", "_mutations", "_produce", "_request")

    def __init__(
        self,
        produce: RateMeter | None,
        fetch: RateMeter | None,
        request: RateMeter | None,
        mutations: MutationMeter | None,
        counts: ThrottleCounts,
    ) -> None:
        self._produce = produce
        self._fetch = fetch
        self._request = request
        self._mutations = mutations
        self._counts = counts

    def record_produce(self, size: int, now_s: float) -> float:
        """Add the bytes of a Produce request; returns its throttle time."""
        if self._produce is None:
            return 0.0
        throttle_s = self._produce.record(size, now_s)
        return self._counts.add(QuotaKey.PRODUCER_BYTE_RATE, throttle_s)

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the size that a Fetch response may have: up to what the window allows."""
        if self._fetch is None:
            return bytes_max
        return min(bytes_max, max(1, int(self._fetch.limit * FULL_SAMPLES_MIN * SAMPLE_S)))

    def admit_fetch(self, size: int, now_s: float) -> tuple[bool, float]:
        """Return whether a Fetch response may be sent, and its throttle time.

        One that exceeds the limit is replaced by an empty one, and does not count. But the first
        one in a window is sent whatever its size, or a batch above the window's bytes would stop
        its consumer for good.
        """
        if self._fetch is None:
            return True, 0.0
        is_first = self._fetch.rate.is_idle(now_s)
        throttle_s = self._fetch.record(size, now_s)
        self._counts.add(QuotaKey.CONSUMER_BYTE_RATE, throttle_s)
        if throttle_s > 0 and not is_first:
            self._fetch.rate.record(-size, now_s)
            return False, throttle_s
        return True, throttle_s

    def record_request(self, seconds: float, now_s: float) -> None:
        """Add time that requests took on a thread of the broker."""
        if self._request is not None:
            self._request.rate.record(seconds * 100, now_s)

    def request_throttle_s(self, now_s: float) -> float:
        """Return the throttle time of a request, for the time that those before it took."""
        if self._request is None:
            return 0.0
        throttle_s = min(self._request.throttle_s(now_s), REQUEST_THROTTLE_S_MAX)
        return self._counts.add(QuotaKey.REQUEST_PERCENTAGE, throttle_s)

    def take_mutations(self, partitions: int, now_s: float, *, is_strict: bool) -> bool:
        """Take partitions from the bucket; returns whether they may be changed.

        A strict request is refused while the bucket is overdrawn; an older version is served,
        and only its throttle time grows.
        """
        if self._mutations is None:
            return True
        bucket, limit = self._mutations.bucket, self._mutations.limit
        if is_strict and bucket.is_overdrawn(limit, now_s):
            return False
        bucket.take(partitions, limit, now_s)
        return True

    def mutation_throttle_s(self, now_s: float) -> float:
        """Return the throttle time of a request that changed partitions."""
        if self._mutations is None:
            return 0.0
        throttle_s = self._mutations.bucket.throttle_s(self._mutations.limit, now_s)
        return self._counts.add(QuotaKey.CONTROLLER_MUTATION_RATE, throttle_s)


class QuotaMeters:
    """The meters of all clients of a broker."""

    def __init__(self) -> None:
        self.counts = ThrottleCounts()
        self.is_active = False
        """Whether any quota exists; without one nothing is looked up."""
        self._quotas = NO_QUOTAS
        self._clients: dict[tuple[str, str], ClientMeters | None] = {}
        # By the user and client id that share a meter; None is any.
        self._rates: dict[tuple[QuotaKey, str | None, str | None], RateMeter] = {}
        self._buckets: dict[tuple[str | None, str | None], MutationMeter] = {}
        self._connections: dict[str, RateMeter] = {}
        """By address."""

    def use(self, quotas: Quotas) -> bool:
        """Enforce these quotas from now on; returns whether they differ from those before.

        What was recorded stays: a changed limit holds for it too.
        """
        if quotas is self._quotas or quotas == self._quotas:
            return False
        self._quotas = quotas
        self._clients.clear()
        self.is_active = bool(quotas)
        if not quotas:
            self._rates.clear()
            self._buckets.clear()
            self._connections.clear()
        return True

    def find(self, user: str, client_id: str, now_s: float) -> ClientMeters | None:
        """Return the meters of a client; None if no quota covers it."""
        client = user, client_id
        try:
            return self._clients[client]
        except KeyError:
            pass
        if max(len(self._clients), len(self._rates), len(self._buckets)) >= METERS_MAX:
            self._drop_unused(now_s)
        found = self._clients[client] = self._resolve(user, client_id, now_s)
        return found

    def admit_connection(self, ip: str, now_s: float) -> float:
        """Count a new connection; returns 0, or after what time it is to be closed unserved.

        One that is not admitted does not count (KIP-612).
        """
        limit = self._quotas.find_connection_rate(ip) if self.is_active else None
        if limit is None:
            return 0.0
        if len(self._connections) >= METERS_MAX and ip not in self._connections:
            self._connections = _kept(self._connections, now_s)
        meter = self._connections.setdefault(ip, RateMeter(limit))
        meter.limit = limit
        throttle_s = min(meter.record(1, now_s), CONNECTION_THROTTLE_S_MAX)
        if throttle_s > 0:
            meter.rate.record(-1, now_s)
        return self.counts.add(QuotaKey.CONNECTION_CREATION_RATE, throttle_s)

    def _resolve(self, user: str, client_id: str, now_s: float) -> ClientMeters | None:
        produce = self._rate(QuotaKey.PRODUCER_BYTE_RATE, user, client_id)
        fetch = self._rate(QuotaKey.CONSUMER_BYTE_RATE, user, client_id)
        request = self._rate(QuotaKey.REQUEST_PERCENTAGE, user, client_id)
        mutations = self._bucket(user, client_id, now_s)
        if produce is None and fetch is None and request is None and mutations is None:
            return None
        return ClientMeters(produce, fetch, request, mutations, self.counts)

    def _rate(self, key: QuotaKey, user: str, client_id: str) -> RateMeter | None:
        limit = self._quotas.find_limit(key, user, client_id)
        if limit is None:
            return None
        meter = self._rates.setdefault((key, *limit[1:]), RateMeter(limit.value))
        meter.limit = limit.value
        return meter

    def _bucket(self, user: str, client_id: str, now_s: float) -> MutationMeter | None:
        limit = self._quotas.find_limit(QuotaKey.CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return None
        meter = self._buckets.setdefault(limit[1:], MutationMeter(limit.value, now_s))
        meter.limit = limit.value
        return meter

    def _drop_unused(self, now_s: float) -> None:
        """Remove the meters that new ones can replace, and the oldest above half of the limit."""
        self._rates = _kept(self._rates, now_s)
        self._buckets = _kept(self._buckets, now_s)
        self._clients.clear()


Key = TypeVar("Key")
Meter = TypeVar("Meter", RateMeter, MutationMeter)


def _kept(meters: dict[Key, Meter], now_s: float) -> dict[Key, Meter]:
    used = [(key, each) for key, each in meters.items() if not each.is_unused(now_s)]
    return dict(used[-METERS_MAX // 2 :])
