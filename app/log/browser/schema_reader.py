"""Reads values in Avro by the schemas of a registry, and says why where it does not."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from app.config import Settings
from app.log.browser.content import Undecoded
from app.log.inspection.deadline import Deadline
from logbroker.schemas.reading_errors import RegistryUnavailable, UndecodableValue

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

_REGISTRY_S: Final = 1.0
"""How long one question to the registry may take: a page has time for a few."""


class SchemaReader:
    """Keeps the schemas that it was told. Safe to use from any thread; blocks."""

    def __init__(self, settings: Settings) -> None:
        self._registry = settings.schema_registry
        self._lock = threading.Lock()
        self._decoder: AvroDecoder | None = None

    def close(self) -> None:
        """Close the connections to the registry."""
        with self._lock:
            if self._decoder is not None:
                self._decoder.close()
                self._decoder = None

    def for_page(self, deadline: Deadline) -> Callable[[bytes], bytes]:
        """What reads the values of one page: a registry that is away is asked once for all."""
        if not self._registry:
            return _without_registry
        decoder = self._made()
        away: list[str] = []

        def to_json(value: bytes) -> bytes:
            if not decoder.knows(value):
                if away:
                    raise Undecoded(away[0])
                if deadline.is_over:
                    raise Undecoded("there was no time left to ask the schema registry")
            try:
                return decoder.to_json(value)
            except RegistryUnavailable as error:
                away.append(str(error))
                raise Undecoded(str(error)) from error
            except UndecodableValue as error:
                raise Undecoded(str(error)) from error

        return to_json

    def _made(self) -> "AvroDecoder":
        with self._lock:
            if self._decoder is None:
                # To load them takes a tenth of the API's start, and few logs hold Avro.
                from logbroker.schemas.decoder import AvroDecoder
                from logbroker.schemas.lookup import SchemaLookup

                self._decoder = AvroDecoder(SchemaLookup(self._registry, timeout_s=_REGISTRY_S))
            return self._decoder


def _without_registry(_value: bytes) -> bytes:
    raise Undecoded("no schema registry is set: REWIND_SCHEMA_REGISTRY")
