"""Which Avro values the matcher skips, and how often it looks up unknown schemas."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from app.live.avro_events import AvroEvents
from app.live.metrics import LiveMetrics
from app.log.event import LoggedEvent
from logbroker.schemas import lookup
from logbroker.schemas.decoder import AvroDecoder
from logbroker.schemas.lookup import SchemaLookup
from tests.support.schemas.registry_stub import RegistryStub

SCHEMA = '{"type": "record", "name": "C", "fields": [{"name": "user", "type": "string"}]}'
GARBAGE = b"\0\0\0\0\1garbage"
GOOD = b"\0\0\0\0\1\2x"


class Matching:
    """Decodes records of one partition in order, and collects the skipped positions."""

    def __init__(self, registry: RegistryStub) -> None:
        self.skipped: list[str] = []
        self.decoder = AvroDecoder(SchemaLookup(registry.url))
        self._events = AvroEvents(
            self.decoder, LiveMetrics(), lambda place, _reason: self.skipped.append(place)
        )
        self._offset = 0

    def read(self, *values: bytes, read_s: float | None = None) -> list[bytes]:
        events = [
            LoggedEvent(self._offset + each, 0, None, "", "", value)
            for each, value in enumerate(values)
        ]
        self._offset += len(values)
        came_s = time.monotonic() if read_s is None else read_s
        read = asyncio.run(self._events.decode({0: events}, came_s))
        return [each.value for each in read[0]]


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    with RegistryStub() as stub:
        yield stub


@pytest.fixture
def matching(registry: RegistryStub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Matching]:
    monkeypatch.setattr(lookup, "AGAIN_S", 0.0)
    matching = Matching(registry)
    with closing(matching.decoder):
        yield matching


def test_garbage_with_the_next_schema_id_skips_no_valid_event(
    registry: RegistryStub, matching: Matching
) -> None:
    assert matching.read(GARBAGE) == []
    assert registry.add(SCHEMA) == 1
    assert matching.read(GOOD, GOOD) == [b'{"user":"x"}'] * 2
    assert matching.skipped == ["events-0-0"]


def test_garbage_read_before_a_lookup_causes_no_further_lookup(
    registry: RegistryStub, matching: Matching
) -> None:
    read_s = time.monotonic()
    for _ in range(3):
        assert matching.read(GARBAGE, b"{}", GARBAGE, read_s=read_s) == [b"{}"]
    assert len(matching.skipped) == 6
    assert registry.asked == ["/schemas/ids/1"]


def test_an_id_that_the_registry_rejects_delays_nothing(
    registry: RegistryStub, matching: Matching
) -> None:
    """As Confluent's registry does: HTTP 404 for the path instead of the schema."""
    registry.answer(f"/schemas/ids/{2**32 - 1}", 404, {"error_code": 404, "message": "HTTP 404"})
    assert matching.read(b"\0\xff\xff\xff\xffx", b"{}") == [b"{}"]
    assert matching.skipped == ["events-0-0"]
