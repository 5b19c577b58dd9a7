"""One replay whose restore fails keeps no other from its own."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from logbroker.embedded import EmbeddedBroker
from spark_jobs.errors import RejectedByService
from spark_jobs.jobs.delivery_records import DELIVERY_LOG
from spark_jobs.jobs.restore.archive import ArchiveTopic
from spark_jobs.jobs.restore.job import RestoreResult, restore_all
from spark_jobs.jobs.restore.service import ReplayService

WINDOW = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T01:00:00Z"}


class Refusing(BaseHTTPRequestHandler):
    """A service in which two replays wait, and which will not hear of the first."""

    received: list[str] = []  # noqa: RUF012  of the whole server

    def do_GET(self) -> None:
        place = {"webhookId": "wh_1", **WINDOW, "partition": 0, "below": 5, "missing": None}
        items = [{"replayId": name, **place} for name in ("rep_bad", "rep_good")]
        self._answer(200, {"items": items, "furtherPartitions": [], "needed": []})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        replay = self.path.split("/")[2]
        self.received.append(replay)
        self._answer(422 if replay == "rep_bad" else 200, {})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    Refusing.received.clear()
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_replay_that_is_refused_keeps_none_behind_it_waiting(
    broker: EmbeddedBroker, refusing: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(DELIVERY_LOG, 1)])[DELIVERY_LOG].result()
    archive = ArchiveTopic("archive", {"bootstrap.servers": broker.bootstrap_servers}, -1)
    done: list[RestoreResult] = []
    with ReplayService(refusing, "k") as service, pytest.raises(RejectedByService, match="422"):
        done.extend(restore_all(service, archive, str(tmp_path / "table"), pytest.fail))
    assert [each.replay_id for each in done] == ["rep_good"]
    assert Refusing.received == ["rep_bad", "rep_good"]
