"""Measures schema lookups by id, over HTTP and cached, and the decoding of Avro events to JSON.

The baseline of requests/s is a request that looks up nothing. The baseline of cached lookups/s is
the request over HTTP. The baseline of decoded events/s is fastavro alone. Events have six fields in
some 150 bytes.
"""

import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
import httpx

from benchmarks.http_load import HttpRequest, encode, send_repeatedly
from benchmarks.running_broker import fresh_broker
from benchmarks.running_process import running_process
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line
from logbroker.schemas.decoder import AvroDecoder
from logbroker.schemas.lookup import SchemaLookup

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Happened",
    "namespace": "bench",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "type", "type": "string"},
        {"name": "userId", "type": "long"},
        {"name": "score", "type": "double"},
        {"name": "isNew", "type": "boolean"},
        {"name": "text", "type": ["null", "string"], "default": None},
    ],
}
EVENT: Final = {
    "id": "evt_0000000001",
    "type": "follow.created",
    "userId": 4_711,
    "score": 0.5,
    "isNew": True,
    "text": "x" * 100,
}
MAGIC: Final = b"\0"
CONNECTIONS: Final = 4
LOOKUP_S: Final = 5.0


class Figures(NamedTuple):
    """One round: requests/s, lookups/s, events/s."""

    bare: float
    by_id: float
    cached: float
    decoded: float
    library: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round."""
    with _registry(folder) as url:
        response = httpx.post(
            f"{url}/subjects/events-value/versions", json={"schema": json.dumps(SCHEMA)}
        )
        schema_id = int(response.raise_for_status().json()["id"])
        return _lines([_round(url, schema_id, scale.webhook_s) for _ in range(scale.rounds)])


@contextmanager
def _registry(folder: Path) -> Iterator[str]:
    with fresh_broker(folder) as broker:
        servers = ("--bootstrap-servers", broker.bootstrap_servers, "--listen", "127.0.0.1:0")
        arguments = ["-m", "logbroker", "registry", *servers]
        with running_process(arguments, "logbroker registry ready on ") as registry:
            yield f"http://{registry.address}"


def _round(url: str, schema_id: int, seconds: float) -> Figures:
    lookup, decoder = SchemaLookup(url, timeout_s=LOOKUP_S), AvroDecoder(SchemaLookup(url))
    value = _encoded(schema_id)
    parsed = fastavro.parse_schema(SCHEMA)
    assert json.loads(decoder.to_json(value)) == EVENT
    return Figures(
        bare=_request_rate(url, encode("GET", "/", status=200), seconds),
        by_id=_request_rate(url, encode("GET", f"/schemas/ids/{schema_id}", status=200), seconds),
        cached=_call_rate(lambda: lookup.schema(schema_id), seconds),
        decoded=_call_rate(lambda: decoder.to_json(value), seconds),
        library=_call_rate(lambda: _decoded(value, parsed), seconds),
    )


def _encoded(schema_id: int) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, SCHEMA, EVENT)
    return MAGIC + schema_id.to_bytes(4, "big") + body.getvalue()


def _decoded(value: bytes, parsed: Any) -> object:
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None)


def _request_rate(url: str, request: HttpRequest, seconds: float) -> float:
    return send_repeatedly(url, request, CONNECTIONS, seconds).per_s


def _call_rate(step: Callable[[], object], seconds: float) -> float:
    """Return the calls per second."""
    count, start_s = 0, time.perf_counter()
    while time.perf_counter() - start_s < seconds:
        for _ in range(100):
            step()
        count += 100
    return count / (time.perf_counter() - start_s)


def _lines(rounds: list[Figures]) -> list[Line]:
    middle = Figures(*(median(figures) for figures in zip(*rounds, strict=True)))
    return [
        Line("GET /", middle.bare, "requests/s"),
        Line("GET /schemas/ids/{id}", middle.by_id, "requests/s", Baseline("GET /", middle.bare)),
        Line(
            "lookup of a cached schema",
            middle.cached,
            "lookups/s",
            Baseline("over HTTP", middle.by_id),
        ),
        Line(
            "event decoded to JSON",
            middle.decoded,
            "events/s",
            Baseline("fastavro alone", middle.library),
        ),
    ]
