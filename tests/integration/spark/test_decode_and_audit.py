"""Decode and audit of a loaded table, with a real schema registry."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, time, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.consumer import AuditedProducer, NewMessage
from logbroker.embedded import EmbeddedBroker
from spark_jobs.contracts import AUDIT, DECODED, QUARANTINE
from spark_jobs.errors import SourceFailed
from spark_jobs.jobs.audit import LoadAudit
from spark_jobs.jobs.decode import DecodeJob, DecodeReport
from spark_jobs.jobs.load import LoadRequest, load
from spark_jobs.offsets.limits import Subscribed
from spark_jobs.tables import open_table, read_table
from tests.support.schemas.registry_process import RegistryProcess

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Follow",
    "fields": [{"name": "user", "type": "string"}],
}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [*FIRST["fields"], {"name": "muted", "type": "boolean", "default": False}],
}


@pytest.fixture
def registry(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[RegistryProcess]:
    with RegistryProcess(tmp_path, broker.bootstrap_servers).serve() as process:
        yield process


def registered(registry: RegistryProcess, schema: dict[str, Any]) -> int:
    path = "/subjects/events-value/versions"
    answer = registry.ask("POST", path, {"schema": json.dumps(schema)})
    found: int = answer.raise_for_status().json()["id"]
    return found


def framed(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4) + stream.getvalue()


YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)
NOON_MS = round(datetime.combine(YESTERDAY, time(12), UTC).timestamp() * 1_000)


def of_yesterday(values: Iterable[bytes]) -> list[NewMessage]:
    """Messages of one minute of yesterday, also if the test runs over midnight."""
    return [NewMessage(value, timestamp_ms=NOON_MS) for value in values]


class Night:
    """The tables of one topic, and the nightly jobs for them."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path, registry_url: str) -> None:
        self.tables = {
            name: str(folder / name) for name in ("records", "decoded", "quarantine", "audited")
        }
        self._session = lambda: spark
        self.spark = spark
        self._request = LoadRequest(
            {"bootstrap.servers": servers},
            Subscribed(("events", AUDIT_TOPIC)),
            self.tables["records"],
            may_lose=True,
        )
        self._registry_url = registry_url

    def load(self) -> None:
        load(self._request, self._session)

    def decode(self) -> DecodeReport:
        return DecodeJob(
            self.tables["records"],
            self.tables["decoded"],
            self.tables["quarantine"],
            topics=("events",),
            registry_url=self._registry_url,
        ).run(self._session)

    def json_values(self) -> Counter[str]:
        rows = read_table(self.spark, self.tables["decoded"], DECODED).collect()
        return Counter(row.json for row in rows)

    def accounts(self) -> Counter[str | None]:
        rows = read_table(self.spark, self.tables["decoded"], DECODED).collect()
        return Counter(row.accountId for row in rows)

    def reasons(self) -> list[str]:
        rows = read_table(self.spark, self.tables["quarantine"], QUARANTINE)
        return sorted(row.reason for row in rows.collect())


def test_new_records_are_decoded_and_lost_ones_found(
    spark: SparkSession, broker: EmbeddedBroker, registry: RegistryProcess, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic("events", 1), NewTopic(AUDIT_TOPIC, 1)]).values():
        made.result()
    first, second = registered(registry, FIRST), registered(registry, SECOND)
    night = Night(spark, servers, tmp_path, registry.url)
    old = [framed(first, FIRST, {"user": str(n)}) for n in range(20)]
    new = [framed(second, SECOND, {"user": str(n), "muted": True}) for n in range(5)]
    bad = [b"\0\0\0\x03\xe7\x02a", framed(first, FIRST, {"user": "x"}) + b"more", b"\xff", b"[]"]

    with AuditedProducer(servers, server="web-1") as producer:
        for_account = NewMessage(b'{"user": "json"}', [("account-id", b"acc_1")], NOON_MS)
        producer.send("events", [*of_yesterday(old), for_account]).result()
    # Four are deleted before they are loaded.
    deleted = admin.delete_records([TopicPartition("events", 0, 4)])
    for done in deleted.values():
        done.result()
    night.load()
    assert night.decode() == DecodeReport(records=17, quarantined=0, schemas=1, version=1)
    assert night.decode() == DecodeReport(0, 0, 0, None)
    with AuditedProducer(servers, server="web-2") as producer:
        producer.send("events", of_yesterday([*new, *bad, *new])).result()
    night.load()

    # Without the registry a run fails and changes no table.
    url, night._registry_url = night._registry_url, "http://127.0.0.1:9"
    with pytest.raises(SourceFailed, match="cannot be looked up"):
        night.decode()
    night._registry_url = url
    assert night.decode() == DecodeReport(records=10, quarantined=4, schemas=3, version=2)

    decoded = Counter(f'{{"user":"{n}"}}' for n in range(4, 20))
    decoded.update(['{"user": "json"}', *[f'{{"user":"{n}","muted":true}}' for n in range(5)] * 2])
    assert night.json_values() == decoded
    assert night.accounts() == {None: 26, "acc_1": 1}
    reasons = night.reasons()
    assert [reason.partition(":")[0] for reason in reasons] == [
        "neither Avro nor JSON",
        "not a JSON object",
        "schema 1",
        "schema 999",
    ]

    # A run that died after the quarantine's commit causes no duplicates there.
    decoded_table = tmp_path / "again"
    night.tables["decoded"] = str(decoded_table)
    assert night.decode() == DecodeReport(records=27, quarantined=0, schemas=3, version=1)
    assert night.json_values() == decoded
    assert night.reasons() == reasons

    audit = LoadAudit(night.tables["records"], night.tables["audited"], (), lateness_ms=0)
    found = audit.audit_day(spark, YESTERDAY)
    rows = read_table(spark, night.tables["audited"], AUDIT).collect()
    counts = {row.producer.split("/")[0]: (row.published, row.loaded, row.missing) for row in rows}
    assert counts == {"web-1": (21, 17, 4), "web-2": (14, 14, 0)}
    assert (found.missing, found.is_whole) == (4, True)
    assert [each["missing"] for each in found.worst] == [4]
    assert open_table(night.tables["audited"]).head().version == 1
    # The reports of a future day are unknown.
    later = audit.audit_day(spark, YESTERDAY + timedelta(days=2))
    assert (later.totals, later.missing, later.is_whole) == ([], 0, False)
