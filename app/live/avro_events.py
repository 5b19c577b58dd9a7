"""Decodes Avro events to the JSON that rules match and receivers get."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from app.live.metrics import LiveMetrics
from app.log.event import LoggedEvent, place_name
from app.log.topics import EVENTS
from logbroker.schemas.reading_errors import SchemaRegistryUnavailable, UndecodableValue

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_WARNING_S: Final = 60.0
_TURN_RECORDS: Final = 50
_AT_ONCE_BYTES_MAX: Final = 65_536
"""A longer value is decoded on a thread, so that the event loop stays responsive."""

Skip = Callable[[str, str], None]
"""Called with the position of an undecodable record and the reason."""


class AvroEvents:
    """Decodes values with schemas of a registry, each of which is fetched once.

    While the registry is unavailable, events with an unknown schema wait.
    """

    def __init__(self, decoder: "AvroDecoder", metrics: LiveMetrics, skip: Skip) -> None:
        self._decoder = decoder
        self._metrics = metrics
        self._skip = skip
        self._next_warning_s = 0.0

    async def decode(
        self, events: Mapping[int, Sequence[LoggedEvent]], read_s: float
    ) -> dict[int, list[LoggedEvent]]:
        """The events in their order, with JSON values; undecodable ones are skipped.

        Values without an Avro frame stay unchanged. `read_s` is when they were read from the log,
        as `time.monotonic` counts: a schema unknown before it is fetched again.
        """
        result: dict[int, list[LoggedEvent]] = {partition: [] for partition in events}
        decoded = 0
        for partition, some in events.items():
            for event in some:
                if self._decoder.is_avro(event.value):
                    decoded += 1
                    if decoded % _TURN_RECORDS == 0:
                        await asyncio.sleep(0)
                    value = await self._json(partition, event, read_s)
                    if value is None:
                        continue
                    event = event._replace(value=value)
                result[partition].append(event)
        return result

    async def _json(self, partition: int, event: LoggedEvent, read_s: float) -> bytes | None:
        place = place_name(EVENTS, partition, event.offset)
        while True:
            try:
                return await self._decode(event.value, read_s)
            except UndecodableValue as error:
                self._skip(place, str(error))
                return None
            except SchemaRegistryUnavailable as error:
                self._record_unavailable(place, error)
                await asyncio.sleep(_RETRY_S)

    async def _decode(self, value: bytes, read_s: float) -> bytes:
        if len(value) <= _AT_ONCE_BYTES_MAX and self._decoder.knows(value, read_s):
            return self._decoder.to_json(value, read_s)
        # The event loop must not wait for the registry.
        return await asyncio.to_thread(self._decoder.to_json, value, read_s)

    def _record_unavailable(self, place: str, error: SchemaRegistryUnavailable) -> None:
        self._metrics.registry_failures.inc()
        now_s = time.monotonic()
        if now_s >= self._next_warning_s:
            self._next_warning_s = now_s + _WARNING_S
            _log.warning(
                "schema-registry-unavailable", extra={"place": place, "reason": str(error)}
            )
