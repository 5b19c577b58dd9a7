"""Turns events in Avro into the JSON that rules look into and receivers get."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from app.live.metrics import LiveMetrics
from app.log.event import LoggedEvent, place_name
from app.log.topics import EVENTS
from logbroker.schemas.reading_errors import RegistryUnavailable, UndecodableValue

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_WARNING_S: Final = 60.0
_TURN_RECORDS: Final = 50
_AT_ONCE_BYTES_MAX: Final = 65_536
"""A longer value takes a thread's time: the loop has others to serve."""

PassOver = Callable[[str, str], None]
"""Takes the place of a record that nobody can read, and why."""


class AvroEvents:
    """Reads values by the schemas of a registry, each of which is asked for once.

    While the registry is away, whoever wants an event of a schema that is not known yet waits.
    """

    def __init__(self, decoder: "AvroDecoder", metrics: LiveMetrics, pass_over: PassOver) -> None:
        self._decoder = decoder
        self._metrics = metrics
        self._pass_over = pass_over
        self._next_warning_s = 0.0

    async def read(
        self, events: Mapping[int, Sequence[LoggedEvent]], read_s: float
    ) -> dict[int, list[LoggedEvent]]:
        """The events in their order, all with JSON; those that cannot be read are left out.

        What is not framed as Avro is left as it is. `read_s` is when they had come from the log,
        as `time.monotonic` counts: what the registry did not know before, it may know by now.
        """
        read: dict[int, list[LoggedEvent]] = {partition: [] for partition in events}
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
                read[partition].append(event)
        return read

    async def _json(self, partition: int, event: LoggedEvent, read_s: float) -> bytes | None:
        place = place_name(EVENTS, partition, event.offset)
        while True:
            try:
                return await self._decode(event.value, read_s)
            except UndecodableValue as error:
                self._pass_over(place, str(error))
                return None
            except RegistryUnavailable as error:
                self._note_away(place, error)
                await asyncio.sleep(_RETRY_S)

    async def _decode(self, value: bytes, read_s: float) -> bytes:
        if len(value) <= _AT_ONCE_BYTES_MAX and self._decoder.knows(value, read_s):
            return self._decoder.to_json(value, read_s)
        # Where the registry has to be asked, the loop must not wait for it.
        return await asyncio.to_thread(self._decoder.to_json, value, read_s)

    def _note_away(self, place: str, error: RegistryUnavailable) -> None:
        self._metrics.registry_failures.inc()
        now_s = time.monotonic()
        if now_s >= self._next_warning_s:
            self._next_warning_s = now_s + _WARNING_S
            _log.warning("schema-registry-away", extra={"place": place, "reason": str(error)})
