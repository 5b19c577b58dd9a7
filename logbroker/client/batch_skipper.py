"""Decides where a client of librdkafka continues when it cannot read a partition."""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError

from logbroker.client.librdkafka import RepeatFilter
from logbroker.client.skipped_batches import Inspection, SkippedBatch
from logbroker.errors import LogbrokerError

DATA_ERRORS: Final = frozenset(
    (
        KafkaError._BAD_MSG,  # noqa: SLF001  the client's public names: a wrong CRC
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001  an unknown message format or codec
        KafkaError._UNDERFLOW,  # noqa: SLF001
        KafkaError.INVALID_MSG,
    )
)
"""Errors of data that a client cannot read. After one, its own position is not reliable: it may
continue at an offset that it took from damaged bytes."""

REJECTIONS_MAX: Final = 3
"""How often a client may reject what is intact by `inspect_log`, as after an error of the network,
before it is skipped."""

_log: Final = logging.getLogger(__name__)


class BatchSkipper:
    """Looks at what a client cannot read; for one thread.

    `properties` are those of the client, with its bootstrap servers. `on_skipped` gets each batch
    that is skipped.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        on_skipped: Callable[[SkippedBatch], object],
        inspect: Callable[..., Inspection] | None = None,
    ) -> None:
        self._properties = properties
        self._on_skipped = on_skipped
        self._inspect = inspect
        self._rejections: dict[tuple[str, int], tuple[int, int]] = {}
        self._failures = RepeatFilter()

    def skip_unreadable(
        self,
        topic: str,
        partition: int,
        position: int,
        error: KafkaError | None = None,
        *,
        until: int | None = None,
    ) -> Inspection | None:
        """Return what is at a position, and report the unreadable batches below `until`; blocks.

        `error` is what the client reported there; without one, it received nothing. None means that
        the log does not answer or cannot be inspected.
        """
        tp = topic, partition
        rejected = None
        if error is not None:
            offset, count = self._rejections.get(tp, (position, 0))
            count = count + 1 if offset == position else 1
            self._rejections[tp] = position, count
            if count >= REJECTIONS_MAX:
                rejected = error.str()
        inspect = self._inspect or _imported_inspect_log()
        try:
            found = inspect(self._properties, tp, position, until=until, rejected=rejected)
        except LogbrokerError as failure:
            if self._failures.pass_if_new(str(failure)) is not None:
                _log.warning(
                    "cannot inspect topic=%s partition=%s offset=%s: %s", *tp, position, failure
                )
            return None
        for batch in found.unreadable:
            self._on_skipped(batch)
        return found


def position_after(found: Inspection | None, position: int) -> int:
    """Return the offset at which to continue after an inspection of `position`."""
    return found.unreadable[-1].end if found is not None and found.unreadable else position


def _imported_inspect_log() -> Callable[..., Inspection]:
    """Import the search for unreadable batches, and with it kafka-python, at the first one."""
    from logbroker.client.raw.unreadable_batches import inspect_log

    return inspect_log
