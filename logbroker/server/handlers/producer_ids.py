"""InitProducerId: assigns ids to idempotent producers (KIP-98)."""

from collections.abc import Callable
from typing import Final

from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse

from logbroker.errors import RequestRefused
from logbroker.registry.registry import Registry
from logbroker.server.connection import Connection
from logbroker.server.registry_thread import RegistryThread
from logbroker.wire.error_codes import (
    INVALID_REQUEST,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    code_of,
)

BLOCK_SIZE: Final = 1_000
"""Ids per block that is allocated from the registry with one durable write."""

NO_ID: Final = -1


class ProducerIdHandlers:
    """Assigns unique producer ids from blocks that the registry stores durably."""

    def __init__(self, registry: Registry, registry_thread: RegistryThread) -> None:
        self._registry = registry
        self._registry_thread = registry_thread
        # Two threads use it; the iterator of a range never returns a number twice.
        self._ids = iter(range(0))

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        connection: Connection,
        respond: Callable[[InitProducerIdResponse], None],
    ) -> None:
        """Return a new id with epoch 0, also to a producer that sends its current id.

        Transactions are not supported, so a transactional id is rejected.
        """
        if request.transactional_id is not None:
            respond(_error_response(TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        elif (request.producer_id or NO_ID) < NO_ID:
            respond(_error_response(INVALID_REQUEST))
        elif (producer_id := next(self._ids, None)) is not None:
            respond(_response(producer_id))
        else:
            self._registry_thread.submit(connection, self._allocate_block, respond)

    def _allocate_block(self) -> InitProducerIdResponse:
        # An earlier call may have allocated a block, and the loop's thread may use it up.
        while (producer_id := next(self._ids, None)) is None:
            try:
                self._ids = iter(self._registry.allocate_producer_ids(BLOCK_SIZE))
            except RequestRefused as refusal:
                return _error_response(code_of(refusal))
        return _response(producer_id)


def _response(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0
    )


def _error_response(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=NO_ID, producer_epoch=NO_ID
    )
