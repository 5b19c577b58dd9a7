"""The complete service in processes, with a receiver, and workers that tests can kill."""

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import httpx
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from app.domain.accounts import Scope
from app.domain.windows import format_time
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import make_migrated
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

EVENTS = 800
OTHER_WEBHOOKS = 4
MINUTE_MS = 60_000
SLOW_S = 0.02
"""The receiver's response time. With eight requests in flight, a replay takes two seconds."""

HELD_S = 0.5
"""The response time while a test looks for the worker: the replay does not end meanwhile."""

LEASE_S = 3.0
IN_FLIGHT = 8

ENVIRONMENT = {
    "REWIND_ALLOW_PRIVATE_TARGETS": "true",
    "REWIND_LEASE_S": str(LEASE_S),
    "REWIND_HEARTBEAT_S": "0.4",
    "REWIND_CHECKPOINT_INTERVAL_S": "0.2",
    "REWIND_MAX_IN_FLIGHT": str(IN_FLIGHT),
    "REWIND_RETRY_BASE_S": "0.1",
    "REWIND_RETRY_CAP_S": "1",
    "REWIND_PARTITIONS": "4",
}
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")

Job = dict[str, Any]


def worker_pid(api: httpx.Client, name: str) -> int:
    """Return the process id of a worker, which has another name in replays than as a process."""
    worker_id = name.removeprefix("worker-")
    processes = [each["name"] for each in api.get("/processes").json()["items"]]
    (process,) = [each for each in processes if each.endswith(f":{worker_id}")]
    return int(process.split(":")[-2])


class Stage:
    """Log, API, database, and a webhook with published events. A context manager.

    The window holds `EVENTS` events of the webhook, `copies` of them twice in the log, and lies
    among events of other times and of other webhooks. Without `bootstrap_servers` it has a broker
    of its own.
    """

    def __init__(self, folder: Path, database_url: str, bootstrap_servers: str = "") -> None:
        self._folder = folder
        self._bootstrap_servers = bootstrap_servers
        self._database_url = database_url
        self._stack = ExitStack()
        self.receiver = ReceiverThread()
        # All webhooks share the receiver and its secret.
        self._secret = new_secret()
        self.receiver.expect(self._secret)
        self.workers: list[ServerProcess] = []
        self.webhook_id = ""
        self.copies = EVENTS // 10
        start_ms = time.time_ns() // 1_000_000 - 30 * MINUTE_MS
        self._times_ms = [start_ms + 100 * number for number in range(EVENTS)]
        self.window = {
            "from": format_time(start_ms),
            "to": format_time(start_ms + 100 * EVENTS),
        }

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def expected(self) -> list[str]:
        """Return the ids of the events in the window, in log order."""
        return [f"evt_{number:04}" for number in range(EVENTS)]

    def worker(self, **settings: str) -> ServerProcess:
        """Start another worker and wait until it is ready. Settings have no prefix."""
        given = {f"REWIND_{name.upper()}": value for name, value in settings.items()}
        output = self._folder / f"worker-{len(self.workers)}.log"
        worker = ServerProcess(
            self._service("worker"), output, ENVIRONMENT | {"REWIND_SERVER": output.stem} | given
        )
        self._stack.enter_context(worker)
        worker.start("rewind worker ready")
        self.workers.append(worker)
        return worker

    def register(self) -> dict[str, Any]:
        """Create another webhook of the same receiver, and return its id and secret."""
        asked = {"url": self.receiver.url, "description": "test", "secret": self._secret}
        answer = self.api.post("/webhooks", json=asked)
        assert answer.status_code == 201, answer.text
        webhook: dict[str, Any] = answer.json()
        assert webhook["status"] == "ENABLED", webhook
        return webhook

    def publish_until_accepted(self, event_id: str, webhook_id: str) -> None:
        """Publish an event in the middle of the window, and retry until it succeeds."""
        event = self._event(event_id, self._times_ms[EVENTS // 2], webhook_id)
        until(lambda: self.api.post("/events", json=event).status_code == 202, event_id)

    def ask_replay(self, **changes: str) -> httpx.Response:
        """Send POST /replays for the window, with `changes` to the request."""
        start = changes.pop("start", self.window["from"])
        end = changes.pop("end", self.window["to"])
        asked = {"webhookId": self.webhook_id, "from": start, "to": end} | changes
        return self.api.post("/replays", json=asked)

    def replay(self) -> str:
        """Create a replay of the window and return its id."""
        answer = self.ask_replay()
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, replay_id: str) -> Job:
        answer = self.api.get(f"/replays/{replay_id}")
        assert answer.status_code == 200, answer.text
        found: Job = answer.json()
        return found

    def finished(self, replay_id: str) -> Job:
        """Wait for the end of a replay and return it."""
        until(lambda: self.job(replay_id)["state"] in TERMINAL, f"{replay_id} is over")
        return self.job(replay_id)

    def failures(self, replay_id: str) -> list[dict[str, Any]]:
        """Return all failures of a replay, over all pages."""
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.api.get(
                f"/replays/{replay_id}/failures",
                params={"limit": 100} | ({"cursor": cursor} if cursor else {}),
            ).json()
            found += page["items"]
            cursor = page["nextCursor"]
            if not cursor:
                return found

    def until_taken(self, count: int) -> None:
        """Wait until the receiver has accepted `count` events."""
        until(lambda: len(self.receiver.taken) >= count, f"{count} events came")

    def holder(self, replay_id: str) -> ServerProcess:
        """Return the worker that runs a replay."""
        pid = worker_pid(self.api, self.job(replay_id)["worker"])
        return next(worker for worker in self.workers if worker.pid == pid)

    def holder_under_way(self, replay_id: str, sent: int) -> ServerProcess:
        """Wait until a replay has sent `sent` events; return its worker while it sends few."""
        self.until_taken(sent)
        self.receiver.answer(204, delay_s=HELD_S)
        return self.holder(replay_id)

    def pause(self, worker: ServerProcess) -> None:
        """Pause a worker outside of transactions: other workers would wait for its locks."""
        worker.pause()
        while not self._can_write():
            worker.resume()
            worker.pause()

    def other_than(self, holder: ServerProcess) -> ServerProcess:
        (other,) = [worker for worker in self.workers if worker is not holder]
        return other

    def _can_write(self) -> bool:
        """Report whether the table of replays is unlocked."""
        is_sqlite = self._database_url.startswith("sqlite")
        lock = "BEGIN IMMEDIATE" if is_sqlite else "SELECT id FROM replays FOR UPDATE NOWAIT"
        engine = create_engine(self._database_url, isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                if not is_sqlite:
                    connection.execute(text("BEGIN"))
                connection.execute(text(lock))
                connection.execute(text("ROLLBACK"))
        except OperationalError:
            return False
        finally:
            engine.dispose()
        return True

    def _open(self) -> None:
        self._stack.enter_context(self.receiver)
        if not self._bootstrap_servers:
            broker = self._stack.enter_context(BrokerProcess(self._folder / "log")).serve()
            self._bootstrap_servers = broker.bootstrap_servers
        make_migrated(self._database_url)
        api = ServerProcess(
            [*self._service("api"), "--port", "0"], self._folder / "api.log", ENVIRONMENT
        )
        self._stack.enter_context(api)
        with closing(Store.open(self._database_url)) as store:
            _, key = issue_key(store, "platform", Scope.OPERATOR, "")
        self.api = httpx.Client(
            base_url=api.start("rewind api ready on "),
            headers={"authorization": f"Bearer {key}"},
            timeout=DEADLINE_S,
            verify=False,  # no TLS
        )
        self._stack.callback(self.api.close)
        self._publish()

    def _service(self, command: str) -> list[str]:
        return [
            *("-m", "app", command, "--database", self._database_url),
            *("--bootstrap-servers", self._bootstrap_servers),
        ]

    def _publish(self) -> None:
        webhook = self.register()
        self.webhook_id = webhook["id"]
        others = [self.register()["id"] for _ in range(OTHER_WEBHOOKS)]
        mine = [
            self._event(event_id, time_ms, self.webhook_id)
            for event_id, time_ms in zip(self.expected, self._times_ms, strict=True)
        ]
        first_ms, end_ms = self._times_ms[0], self._times_ms[-1] + 100
        events = [self._event("too-early", first_ms - 1, self.webhook_id)]
        for number, event in enumerate(mine):
            events += [event, event | {"id": "strange", "webhookId": others[number % len(others)]}]
        events += mine[: self.copies]
        events += [self._event("too-late", end_ms, self.webhook_id)]
        answer = self.api.post(
            "/events",
            content="\n".join(map(json.dumps, events)),
            headers={"content-type": "application/x-ndjson"},
        )
        assert answer.json() == {"accepted": len(events)}, answer.text

    @staticmethod
    def _event(event_id: str, time_ms: int, webhook_id: str) -> dict[str, Any]:
        return {
            "id": event_id,
            "type": "follow.created",
            "time": format_time(time_ms),
            "webhookId": webhook_id,
            "data": {"number": event_id},
        }
