"""Replays of the archive: creation, restore, delivery and retry."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from app.config import Settings
from app.domain.model import Webhook
from app.domain.windows import DAY_MS, MINUTE_MS, format_time
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_ARCHIVE
from tests.support.database.migrated import make_migrated
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S, pause_s, until_async
from tests.support.service.replay_service import Service

HOUR_MS = 60 * MINUTE_MS


@pytest.fixture
def settings(tmp_path: Path, broker: BrokerProcess) -> Settings:
    settings = Settings(
        data_dir=tmp_path,
        bootstrap_servers=broker.bootstrap_servers,
        partitions=1,
        allow_private_targets=True,
        poll_interval_s=0.02,
    )
    make_migrated(settings.database)
    return settings


async def response_after_lookup(
    client: httpx.AsyncClient, path: str, place: dict[str, int]
) -> httpx.Response:
    """The answer of a service that may not have heard yet of a topic that was just made."""
    end_s = time.monotonic() + DEADLINE_S
    while True:
        answer = await client.put(path, json=place)
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > end_s:
            return answer
        await asyncio.sleep(pause_s(DEADLINE_S))


class Archive:
    """The topic of restored events, as `rewind-jobs restore` has it."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def make(self) -> None:
        topic = NewTopic(DELIVERY_ARCHIVE, 1, 1, config={"retention.ms": "-1"})
        self._admin.create_topics([topic])[DELIVERY_ARCHIVE].result(DEADLINE_S)

    async def publish(self, service: Service, webhook: Webhook, **times_ms: int) -> None:
        events = [
            NewEvent(webhook.id, name, "test.happened", service.now_ms + time_ms, b"{}")
            for name, time_ms in times_ms.items()
        ]
        async with EventPublisher(self._servers, origin="local", server="test") as publisher:
            await publisher.publish(DELIVERY_ARCHIVE, events)

    def clear(self, below: int) -> None:
        place = TopicPartition(DELIVERY_ARCHIVE, 0, below)
        self._admin.delete_records([place])[place].result(DEADLINE_S)


def asked(service: Service, webhook: Webhook, start_ms: int, end_ms: int) -> dict[str, Any]:
    window = {"from": service.now_ms + start_ms, "to": service.now_ms + end_ms}
    times = {name: format_time(time_ms) for name, time_ms in window.items()}
    return {"webhookId": webhook.id, "source": "archive", **times}


def test_a_replay_of_the_archive_waits_until_its_events_are_there(settings: Settings) -> None:
    archive = Archive(settings.bootstrap_servers)

    async def scenario() -> None:
        async with Service.running(settings) as service:
            other, webhook, client = service.webhook(), service.webhook(), service.client
            await service.publish(webhook, one=-6 * HOUR_MS, two=-5 * HOUR_MS, three=-4 * HOUR_MS)

            old = asked(service, webhook, -40 * DAY_MS, -39 * DAY_MS)
            refused = await client.post("/replays", json=old | {"only": "failed", "dryRun": True})
            assert refused.status_code == 400
            assert [each["field"] for each in refused.json()["errors"]] == ["only", "dryRun"]
            too_long = asked(service, webhook, -40 * DAY_MS, -30 * DAY_MS)
            assert (await client.post("/replays", json=too_long)).json()["field"] == "to"
            assert (await client.post("/replays", json=old | {"source": "log"})).status_code == 400

            key = {"idempotency-key": "monday"}
            answer = await client.post("/replays", json=old, headers=key)
            assert answer.status_code == 202
            waiting = answer.json()
            assert (await client.post("/replays", json=old, headers=key)).json() == waiting
            assert (waiting["state"], waiting["source"]) == ("OPEN", "archive")
            assert waiting["waitsFor"] == {
                "kind": "restore",
                "job": "rewind-jobs restore",
                # Nothing of that time is left: it all lay below the first record that is.
                "partition": 0,
                "below": 0,
                "missing": None,
            }
            for word in ("rewind-jobs restore", webhook.id, old["from"], old["to"]):
                assert word in waiting["waitingFor"]
            path = f"/replays/{waiting['id']}"
            ended = (await client.post(f"{path}/cancel")).json()
            assert (ended["waitsFor"], ended["waitingFor"]) == (None, None)

            # Of times that the log still has, whatever it has now is asked for.
            answer = await client.post(
                "/replays", json=asked(service, webhook, -7 * HOUR_MS, -HOUR_MS)
            )
            replay_id = answer.json()["id"]
            path = f"/replays/{replay_id}"
            (item,) = (await client.get("/restorations")).json()["items"]
            assert (item["replayId"], item["below"], item["missing"]) == (replay_id, 3, None)
            reported = await client.put(f"{path}/restoration/missing", json={"missing": "hour 5"})
            assert reported.json()["waitingFor"].endswith("not found by the last run: hour 5")
            metrics = (await client.get("/metrics")).text
            assert 'rewind_replays_oldest_open_seconds{origin="local"} 0.0' in metrics
            assert 'rewind_replays_oldest_unrestored_seconds{origin="local"} 0.0\n' not in metrics

            place = {"partition": 0, "startOffset": 1, "endOffset": 4}
            unmade = await client.put(f"{path}/restoration", json=place)
            assert unmade.status_code == 503
            archive.make()
            await archive.publish(service, other, stranger=-5 * HOUR_MS)
            await archive.publish(
                service, webhook, one=-6 * HOUR_MS, two=-5 * HOUR_MS, later=-MINUTE_MS
            )
            for wrong in ({"partition": 1}, {"endOffset": 5}, {"startOffset": 5}):
                refused = await response_after_lookup(client, f"{path}/restoration", place | wrong)
                assert refused.status_code == 400, wrong
            service._receiver.answer(400)
            assert (await client.put(f"{path}/restoration", json=place)).status_code == 200
            done = await service.finished(replay_id)
            assert (done.counts.failed, done.counts.delivered) == (2, 0)
            assert sorted(service.event_ids) == ["one", "two"]
            # The job may have lost the answer; and a replay has its events once.
            assert (await client.put(f"{path}/restoration", json=place)).status_code == 200
            again = await client.put(f"{path}/restoration", json=place | {"endOffset": 3})
            assert again.json()["type"] == "urn:rewind:problem:nothing-to-restore"

            # Its failures are tried again from where they were restored to, as long as they are.
            needed = (await client.get("/restorations")).json()
            assert needed == {
                "items": [],
                "furtherPartitions": [],
                "needed": [{"partition": 0, "startOffset": 1}],
            }
            service._receiver.answer(204)
            retry = (await client.post(f"{path}/retry")).json()
            assert (retry["source"], retry["waitsFor"]) == ("archive", None)
            assert (await service.finished(retry["id"])).counts.delivered == 2
            assert sorted(service.event_ids[2:]) == ["one", "two"]
            archive.clear(2)
            refused = await client.post(f"{path}/retry")
            assert refused.json()["type"] == "urn:rewind:problem:window-refused"
            await until_async(lambda: not service.store.claim("other", 1), "no replay is left")

    asyncio.run(scenario())
