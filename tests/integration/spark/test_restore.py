"""Replays of deleted events: loaded, restored and replayed."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.restore_loop import RestoreLoop, restore_window
from spark_jobs.jobs.restore.archive import ArchiveTopic
from spark_jobs.jobs.restore.job import Restore, RestoreResult, restore_all
from spark_jobs.jobs.restore.records import ArchivedRecord
from spark_jobs.jobs.restore.service import ReplayService
from spark_jobs.jobs.service import ServiceAddress
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.spark.loaded_table import LoadScene

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

LOG, ARCHIVE = "delivery_log", "delivery_archive"
EVENTS = 240
MINUTE_MS = 60_000


class Scene:
    """A service on a log of two partitions, a receiver of one webhook, and a table."""

    def __init__(
        self, api: httpx.Client, service: ReplayService, receiver: ReceiverThread, log: LoadScene
    ) -> None:
        self.api = api
        self.log = log
        self.receiver = receiver
        self.service = service
        self.archive = ArchiveTopic(ARCHIVE, {"bootstrap.servers": log.bootstrap_servers}, 1)
        self.webhook = api.post("/webhooks", json={"url": receiver.url}).raise_for_status().json()
        receiver.expect(self.webhook["secret"])
        # These webhooks are unverified, so nothing is sent to them.
        self.strangers = [
            api.post("/webhooks", json={"url": "http://127.0.0.1:1/"}).json()["id"] for _ in "ab"
        ]
        self.begin_ms = int(time.time() * 1_000) - 300 * MINUTE_MS

    def time(self, minute: int) -> str:
        return datetime.fromtimestamp(self.begin_ms / 1_000 + 60 * minute, UTC).isoformat()

    def publish(self, *minutes: int) -> None:
        """Publish an event per minute, for the webhook and for two others."""
        keys = (self.webhook["id"], *self.strangers)
        events = [
            {
                "id": f"evt_{minute}",
                "type": "order.paid",
                "time": self.time(minute),
                "webhookId": key,
                "data": {"of": key, "text": "ü" * 20},
            }
            for minute in minutes
            for key in keys
        ]
        answer = self.api.post("/events", json=events)
        assert answer.status_code == 202, answer.text

    def ask(self, start: int, end: int) -> dict[str, Any]:
        """Create an ordered replay of the archive for these minutes."""
        window = {"from": self.time(start), "to": self.time(end)}
        asked = {"webhookId": self.webhook["id"], "source": "archive", "maxInFlight": 1, **window}
        answer = self.api.post("/replays", json=asked)
        assert answer.status_code == 202, answer.text
        replay: dict[str, Any] = answer.json()
        return replay

    def forget_all(self) -> None:
        """Delete all records, as retention does."""
        for partition in range(2):
            end = max(
                (
                    each.offset + 1
                    for each in self.log.log_records(LOG)
                    if each.partition == partition
                ),
                default=0,
            )
            if end:
                self.log.delete_records(LOG, partition, end)

    def restore(self, spark: SparkSession) -> list[RestoreResult]:
        return list(
            restore_all(self.service, self.archive, str(self.log.table_folder), lambda: spark)
        )

    def rounds(self, spark: SparkSession) -> RestoreLoop:
        """The restore job, which reports its runs to the service."""
        key = self.api.headers["authorization"].removeprefix("Bearer ")
        address = ServiceAddress(str(self.api.base_url), key)
        table = str(self.log.table_folder)
        return RestoreLoop(lambda: iter(self.restore(spark)), table, address, as_json=True)

    def last_report(self) -> tuple[str, dict[str, Any]]:
        """The last run that the service lists."""
        runs = self.api.get("/pipeline/runs").json()["items"]
        (run,) = [(each["outcome"], each["summary"]) for each in runs if each["job"] == "restore"]
        found: tuple[str, dict[str, Any]] = run
        return found

    def completed(self, replay: dict[str, Any]) -> dict[str, Any]:
        path = f"/replays/{replay['id']}"
        until(lambda: self.api.get(path).json()["state"] == "COMPLETED", "it was delivered")
        done: dict[str, Any] = self.api.get(path).json()
        return done

    def events_delivered_by(self, replay: dict[str, Any]) -> list[str]:
        """The events that a replay delivered, in order."""
        return [
            each.event_id
            for each in self.receiver.webhooks
            if each.replay_id == replay["id"] and each.event_id.startswith("evt_")
        ]


@pytest.fixture
def scene(broker: BrokerProcess, tmp_path: Path) -> Iterator[Scene]:
    with (
        ReceiverThread() as receiver,
        running(broker, tmp_path) as (api, key),
        ReplayService(str(api.base_url), key) as service,
    ):
        yield Scene(api, service, receiver, LoadScene(broker.bootstrap_servers, tmp_path))


@contextmanager
def running(broker: BrokerProcess, folder: Path) -> Iterator[tuple[httpx.Client, str]]:
    settings = {"REWIND_PARTITIONS": "2", "REWIND_ALLOW_PRIVATE_TARGETS": "true"}
    arguments = ["-m", "app", "up", "--data-dir", str(folder / "data"), "--port", "0"]
    arguments += ["--bootstrap-servers", broker.bootstrap_servers]
    with ServerProcess(arguments, folder / "up.log", settings) as up:
        url = up.start("rewind ready on ").strip()
        key = (folder / "data/operator.key").read_text().strip()
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=DEADLINE_S) as api:
            yield api, key
        assert up.stop() == 0


def test_deleted_events_are_restored_and_replayed(
    spark: SparkSession, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.publish(*range(EVENTS))
    until(lambda: len(scene.receiver.taken) == EVENTS, "all came live")
    scene.log.load(spark, LOG)
    logged = scene.log.log_records(LOG)
    scene.forget_all()
    first = scene.ask(60, 180)
    assert first["state"] == "OPEN"
    # Some records of a run that was killed before its report.
    partition = first["waitsFor"]["partition"]
    scene.archive.ensure_topic(LOG)
    left = [
        ArchivedRecord(each.offset, each.timestamp_ms, each.value, []) for each in list(logged)[:20]
    ]
    scene.archive.publish(scene.webhook["id"].encode(), partition, left, f"{LOG}-{partition}")

    (done,) = scene.restore(spark)
    assert done.restored is not None
    assert (done.restored.records, done.restored.partition) == (120, partition)
    replay = scene.completed(first)
    assert replay["counts"] == {"delivered": 120, "duplicates": 0, "failed": 0}
    assert scene.events_delivered_by(first) == [f"evt_{minute}" for minute in range(60, 180)]
    # Unchanged, except for the audit mark, so that they are not counted again.
    start, end = replay["startOffset"], replay["endOffset"]
    restored = [
        each
        for each in scene.log.log_records(ARCHIVE)
        if start <= each.offset < end and each.headers
    ]
    assert {(each.key, each.value, each.timestamp_ms, each.partition) for each in restored} < {
        (each.key, each.value, each.timestamp_ms, each.partition) for each in logged
    }
    names = {name for each in restored for name, _ in each.headers or ()}
    assert names == {"event-id", "event-type", "origin", "server"}
    assert "audit" in {name for each in logged for name, _ in each.headers or ()}

    # The day's delivery report includes the replayed events.
    outcomes = [json.loads(each.value or b"") for each in scene.log.log_records("replay_outcomes")]
    assert {(each["replayId"], each["source"]) for each in outcomes} == {(first["id"], "archive")}
    hours = [hour for each in outcomes for hour in each["hours"].values()]
    assert sum(hour["delivered"] for hour in hours) == 120

    # A partially loaded window is not restored.
    scene.publish(*range(EVENTS, 280))
    second = scene.ask(200, 280)
    with pytest.raises(SystemExit) as end_of_run:
        scene.rounds(spark).run_once()
    assert end_of_run.value.code == 1
    assert scene.last_report() == ("done", {"restored": 0, "records": 0, "missing": 1})
    printed = json.loads(capsys.readouterr().out)
    assert (printed["replayId"], printed["restored"]) == (second["id"], None)
    assert "not loaded yet" in printed["missing"]
    waiting = scene.api.get(f"/replays/{second['id']}").json()
    assert (waiting["state"], waiting["waitsFor"]["missing"]) == ("OPEN", printed["missing"])
    # The first replay's events are no longer needed, nor those of the killed run.
    assert scene.log.log_records(ARCHIVE).total() == 0
    scene.log.load(spark, LOG)
    scene.forget_all()
    scene.rounds(spark).run_once()
    assert json.loads(capsys.readouterr().out)["missing"] is None
    assert scene.last_report() == ("done", {"restored": 1, "records": 80, "missing": 0})
    assert scene.completed(second)["counts"]["delivered"] == 80
    assert scene.events_delivered_by(second) == [f"evt_{minute}" for minute in range(200, 280)]

    # A manual restore needs no waiting replay.
    restore = Restore(str(scene.log.table_folder), scene.archive, lambda: spark)
    window = (scene.strangers[0], scene.begin_ms, scene.begin_ms + 7 * MINUTE_MS)
    properties = {"bootstrap.servers": scene.log.bootstrap_servers}
    restore_window(restore, window, properties, as_json=True)
    place = json.loads(capsys.readouterr().out)
    assert place["records"] == place["end"] - place["start"] == 7
