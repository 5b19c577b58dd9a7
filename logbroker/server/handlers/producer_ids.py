"""InitProducerId: an identity for a producer whose repeats are to be recognised (KIP-98)."""

from collections.abc import Callable
from typing import Final

from kafka.protocol.producer.transaction import InitProducerIdRequest, InitProducerIdResponse

from logbroker.errors import RequestRefused
from logbroker.registry.registry import Registry
from logbroker.server.connection import Connection
from logbroker.server.registry_crew import RegistryCrew
from logbroker.wire.error_codes import (
    INVALID_REQUEST,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    code_of,
)

BLOCK_SIZE: Final = 1_000
"""Ids taken from the registry at once: one durable write for so many producers."""

NO_ID: Final = -1


class ProducerIdHandlers:
    """Hands out producer ids, each once, from blocks that the registry has made durable."""

    def __init__(self, registry: Registry, crew: RegistryCrew) -> None:
        self._registry = registry
        self._crew = crew
        # Both threads take from it; a range's iterator gives no number twice.
        self._ids = iter(range(0))

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        connection: Connection,
        answer: Callable[[InitProducerIdResponse], None],
    ) -> None:
        """A fresh id with epoch 0; a producer that names its own id gets a fresh one, too.

        Transactions are not served, so a transactional id is refused.
        """
        if request.transactional_id is not None:
            answer(_refused(TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        elif (request.producer_id or NO_ID) < NO_ID:
            answer(_refused(INVALID_REQUEST))
        elif (producer_id := next(self._ids, None)) is not None:
            answer(_given(producer_id))
        else:
            self._crew.ask(connection, self._answer_of_new_block, answer)

    def _answer_of_new_block(self) -> InitProducerIdResponse:
        # Who asked before may have brought a block, and the loop's thread may use one up.
        while (producer_id := next(self._ids, None)) is None:
            try:
                self._ids = iter(self._registry.allocate_producer_ids(BLOCK_SIZE))
            except RequestRefused as refusal:
                return _refused(code_of(refusal))
        return _given(producer_id)


def _given(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0
    )


def _refused(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=NO_ID, producer_epoch=NO_ID
    )
