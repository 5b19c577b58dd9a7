"""InitProducerId: an identity for a producer whose repeats are to be recognised (KIP-98)."""

from typing import Final

from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse

from logbroker.registry.local import LocalRegistry
from logbroker.wire.error_codes import INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED

BLOCK_SIZE: Final = 1_000
"""Ids taken from the registry at once: one durable write for so many producers."""

NO_ID: Final = -1


class ProducerIdHandlers:
    """Hands out producer ids, each once, from blocks that the registry has made durable."""

    def __init__(self, registry: LocalRegistry) -> None:
        self._registry = registry
        self._ids = iter(range(0))

    def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        """A fresh id with epoch 0; a producer that names its own id gets a fresh one, too.

        Transactions are not served, so a transactional id is refused.
        """
        if request.transactional_id is not None:
            return self._answer(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_ID, NO_ID)
        if (request.producer_id or NO_ID) < NO_ID:
            return self._answer(INVALID_REQUEST, NO_ID, NO_ID)
        return self._answer(0, self._next_id(), 0)

    def _next_id(self) -> int:
        try:
            return next(self._ids)
        except StopIteration:
            self._ids = iter(self._registry.allocate_producer_ids(BLOCK_SIZE))
            return next(self._ids)

    def _answer(self, code: int, producer_id: int, epoch: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(
            throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=epoch
        )
