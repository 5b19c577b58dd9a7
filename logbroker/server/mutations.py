"""The partitions that a request creates or deletes, limited by a quota (KIP-599)."""

from logbroker.errors import ThrottlingQuotaExceeded
from logbroker.quotas.entities import QuotaKey
from logbroker.quotas.meters import milliseconds
from logbroker.server.connection import Connection


class PartitionMutations:
    """The changes of one request of a connection.

    A strict request is refused once the client has used up its quota. Older versions, whose
    clients do not know the error, are served, and their connection is muted.
    """

    def __init__(self, connection: Connection, *, is_strict: bool) -> None:
        self._connection = connection
        self._is_strict = is_strict

    def count_partitions(self, partitions: int) -> ThrottlingQuotaExceeded | None:
        """Count partitions to create or delete; returns the error if the quota is used up."""
        connection = self._connection
        if connection.meters is None or connection.meters.take_mutations(
            partitions, connection.now_s, is_strict=self._is_strict
        ):
            return None
        return ThrottlingQuotaExceeded(
            f"the quota {QuotaKey.CONTROLLER_MUTATION_RATE} is used up; retry after the throttle "
            "time of this response"
        )

    def throttle_ms(self) -> int:
        """Return the throttle time of the response, and mute the connection for it."""
        connection = self._connection
        if connection.meters is None:
            return 0
        throttle_s = connection.meters.mutation_throttle_s(connection.now_s)
        if throttle_s > 0:
            connection.mute(throttle_s)
        return milliseconds(throttle_s)
