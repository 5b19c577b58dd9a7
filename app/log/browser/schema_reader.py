"""Decodes Avro values by the schemas of a registry, or reports why it cannot."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from app.config import Settings
from app.log.browser.content import Undecoded
from app.log.inspection.deadline import Deadline
from logbroker.schemas.reading_errors import SchemaRegistryUnavailable, UndecodableValue

if TYPE_CHECKING:
    from logbroker.schemas.decoder import AvroDecoder

_REGISTRY_S: Final = 1.0
"""The timeout of one request to the registry: a page has time for a few."""


class SchemaReader:
    """Caches schemas. Thread-safe; blocks."""

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
        """Return a decoder for the values of one page, which tries an unavailable registry once."""
        if not self._registry:
            return _without_registry
        decoder = self._get_decoder()
        unavailable: list[str] = []

        def to_json(value: bytes) -> bytes:
            if not decoder.knows(value):
                if unavailable:
                    raise Undecoded(unavailable[0])
                if deadline.is_over:
                    raise Undecoded("no time left for a schema lookup")
            try:
                return decoder.to_json(value)
            except SchemaRegistryUnavailable as error:
                unavailable.append(str(error))
                raise Undecoded(str(error)) from error
            except UndecodableValue as error:
                raise Undecoded(str(error)) from error

        return to_json

    def _get_decoder(self) -> "AvroDecoder":
        with self._lock:
            if self._decoder is None:
                # Their import takes a tenth of the API's start-up time, and few logs have Avro.
                from logbroker.schemas.decoder import AvroDecoder
                from logbroker.schemas.lookup import SchemaLookup

                self._decoder = AvroDecoder(SchemaLookup(self._registry, timeout_s=_REGISTRY_S))
            return self._decoder


def _without_registry(_value: bytes) -> bytes:
    raise Undecoded("no schema registry is set: REWIND_SCHEMA_REGISTRY")
