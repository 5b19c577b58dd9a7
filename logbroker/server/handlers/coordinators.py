"""FindCoordinator: who looks after a consumer group. Nobody, since groups are not served."""

from typing import Final

from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from logbroker.wire.error_codes import COORDINATOR_NOT_AVAILABLE

NO_BROKER: Final = -1
NO_PORT: Final = -1
FIRST_WITH_MANY: Final = 4
REASON: Final = "this broker keeps no consumer groups and no transactions"

_Coordinator = FindCoordinatorResponse.Coordinator


def find_coordinator(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """No coordinator for any key: a client that only assigns partitions goes on without one."""
    is_many = (request.version or 0) >= FIRST_WITH_MANY
    return FindCoordinatorResponse(
        throttle_time_ms=0,
        error_code=COORDINATOR_NOT_AVAILABLE,
        error_message=REASON,
        node_id=NO_BROKER,
        host="",
        port=NO_PORT,
        coordinators=[
            _Coordinator(
                key=key,
                node_id=NO_BROKER,
                host="",
                port=NO_PORT,
                error_code=COORDINATOR_NOT_AVAILABLE,
                error_message=REASON,
            )
            for key in (request.coordinator_keys if is_many else ())
        ],
    )
