"""FindCoordinator: which broker looks after a consumer group."""

from typing import Final

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.server.partition import Partitions
from logbroker.wire.error_codes import COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST

NO_BROKER: Final = BrokerEndpoint(-1, "", -1)
FIRST_WITH_MANY: Final = 4

GROUP, TRANSACTION = 0, 1

_Coordinator = FindCoordinatorResponse.Coordinator
_Found = tuple[BrokerEndpoint, int, str | None]


class CoordinatorHandlers:
    """Answers from the cluster's view, so any broker tells the same."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def find_coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """The coordinator of one group, or (from v4) of each of many.

        Of a transaction there is none; a client that does not use them goes on without.
        """
        view, kind = self._partitions.view, request.key_type or GROUP
        is_many = (request.version or 0) >= FIRST_WITH_MANY
        broker, code, reason = (
            (NO_BROKER, 0, None) if is_many else _find(view, kind, request.key or "")
        )
        return FindCoordinatorResponse(
            throttle_time_ms=0,
            error_code=code,
            error_message=reason,
            node_id=broker.broker_id,
            host=broker.host,
            port=broker.port,
            coordinators=[
                _described(key, _find(view, kind, key))
                for key in (request.coordinator_keys if is_many else ())
            ],
        )


def _find(view: ClusterView, kind: int, key: str) -> _Found:
    if kind == TRANSACTION:
        return NO_BROKER, INVALID_REQUEST, "this broker keeps no transactions"
    if kind != GROUP:
        return NO_BROKER, INVALID_REQUEST, f"there are no coordinators of kind {kind}"
    broker = view.coordinator(key)
    if broker is None:
        return NO_BROKER, COORDINATOR_NOT_AVAILABLE, "nobody looks after the group at present"
    return broker, 0, None


def _described(key: str, found: _Found) -> _Coordinator:
    broker, code, reason = found
    return _Coordinator(
        key=key,
        node_id=broker.broker_id,
        host=broker.host,
        port=broker.port,
        error_code=code,
        error_message=reason,
    )
