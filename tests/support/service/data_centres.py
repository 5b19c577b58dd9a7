"""Two data centres with one database, as processes, and the mirrors between their logs."""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, Self

import httpx

from app.domain.accounts import Scope
from app.live import deliverer, matcher
from app.log.outcomes import DeliveryOutcome, decode_outcome
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, EVENTS
from app.store import Store, migrate
from app.webhooks.signing import new_secret
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from tests.support.database.api_keys import issue_key
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import READY as MIRROR_READY
from tests.support.kafka.mirrored_clusters import MirrorProcess
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.live_service import PARTITIONS, READY, LiveScene, LogRecord

MIRRORED: Final = (DELIVERY_LOG, DELIVERY_OUTCOMES, AUDIT_TOPIC)

SESSION_MS: Final = 6_000
"""The shortest session timeout that a broker accepts by default."""

LATENESS_MS: Final = 1_000

SETTINGS: Final[dict[str, object]] = {
    "partitions": PARTITIONS,
    "allow_private_targets": True,
    "lateness_s": LATENESS_MS / 1_000,
    # There are no retries: replays deliver what fails at the first attempt.
    "live_delays_s": "0",
    "scheduled_retries_s": "",
    "audit_window_s": 1,
}

Row = dict[str, Any]
TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")


class DataCentre:
    """A log of one broker with API, live path and worker. A context manager.

    `launch` begins what `wait` ends, so that several start side by side.
    """

    def __init__(
        self, name: str, folder: Path, database_url: str, settings: Mapping[str, object]
    ) -> None:
        self.name = name
        self._settings = {**SETTINGS, **settings}
        self._folder = folder / name
        self._folder.mkdir()
        self._database_url = database_url
        self._stack = ExitStack()
        self.broker = self._stack.enter_context(BrokerProcess(self._folder / "log"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def launch(self) -> None:
        """Start the broker, and launch the other processes."""
        servers = self.broker.serve().bootstrap_servers
        self.log = LiveScene(self._folder, servers, self._database_url)
        self._stack.enter_context(self.log)
        self.log.make_topics()
        self._port = free_port()
        self._api = self._service("api", "--port", str(self._port))
        self.worker = self._service("worker")
        for process in (self._api, self.worker):
            process.launch()
        own = {"origin": self.name, "server": f"live-{self.name}"}
        self._live = self.log.live(launch_only=True, **self._settings, **own)

    def wait(self, key: str) -> None:
        """Wait until all processes are ready. `api` sends this key from then on."""
        self._api.until_says("rewind api ready on")
        self.worker.until_says("rewind worker ready")
        self._live.until_says(READY)
        self.api = httpx.Client(
            base_url=f"http://127.0.0.1:{self._port}",
            headers={"authorization": f"Bearer {key}"},
            timeout=DEADLINE_S,
            verify=False,  # no TLS
        )
        self._stack.callback(self.api.close)

    def take_no_more(self) -> None:
        """Stop API and live path cleanly, so that they write their audit reports."""
        assert [process.stop() for process in (self._api, self._live)] == [0, 0]

    def kill(self) -> None:
        """Kill all processes of the data centre."""
        for process in (self.broker, self._api, self._live, self.worker):
            process.kill()

    def publish(self, events: Iterable[Row]) -> None:
        """Publish events and assert that all are accepted."""
        lines = [json.dumps(event) for event in events]
        answer = self.api.post(
            "/events",
            content="\n".join(lines),
            headers={"content-type": "application/x-ndjson"},
        )
        assert answer.json() == {"accepted": len(lines)}, answer.text

    def ask_replay(self, **request: object) -> str:
        """Create a replay and return its id."""
        answer = self.api.post("/replays", json=request)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, replay_id: str) -> Row:
        answer = self.api.get(f"/replays/{replay_id}")
        assert answer.status_code == 200, answer.text
        found: Row = answer.json()
        return found

    def finished(self, replay_id: str) -> Row:
        """Wait for the end of a replay and return it."""
        until(lambda: self.job(replay_id)["state"] in TERMINAL, f"{replay_id} is over")
        return self.job(replay_id)

    def read(self, topic: str) -> list[LogRecord]:
        return self.log.read(topic)

    def own_outcomes(self) -> list[DeliveryOutcome]:
        """Return the outcomes of the events that were published here."""
        records = self.read(DELIVERY_OUTCOMES)
        found = [decode_outcome(each.value) for each in records if self._is_own(each)]
        return [each for each in found if each is not None]

    def _is_own(self, record: LogRecord) -> bool:
        return record.headers["origin"] == self.name

    def is_settled(self) -> bool:
        """Report whether the live path has processed the whole log."""
        groups = ((matcher.GROUP, EVENTS), (deliverer.GROUP, DELIVERY_LOG))
        return not any(self.log.uncommitted(*each) for each in groups)

    def live_metric(self, name: str) -> float:
        """Return a metric of the live path."""
        return scrape(self._live.metrics_port)[name]

    def _service(self, command: str, *options: str) -> ServerProcess:
        settings = self._settings | {
            "database": self._database_url,
            "bootstrap_servers": self.broker.bootstrap_servers,
            "origin": self.name,
            "server": f"{command}-{self.name}",
        }
        environment = {f"REWIND_{name.upper()}": str(value) for name, value in settings.items()}
        output = self._folder / f"{command}.log"
        process = ServerProcess(["-m", "app", command, *options], output, environment)
        return self._stack.enter_context(process)


class Mirror(MirrorProcess):
    """Mirrors the topics of one data centre to the other."""

    def __init__(self, source: DataCentre, destination: DataCentre, folder: Path) -> None:
        self._group = f"mirror-to-{destination.name}"
        self._source = source
        super().__init__(
            folder / self._group,
            source.broker.bootstrap_servers,
            destination.broker.bootstrap_servers,
            ",".join(MIRRORED),
            *("--origin", source.name, "--group", self._group),
            session_ms=SESSION_MS,
        )

    @property
    def is_level(self) -> bool:
        """Report whether all source records are durable at the destination."""
        log = self._source.log
        return not any(log.uncommitted(self._group, topic) for topic in MIRRORED)


class TwoDataCentres:
    """Data centres `a` and `b`, their webhooks, and mirrors both ways. A context manager."""

    def __init__(self, folder: Path, database_url: str, **settings: object) -> None:
        self._folder = folder
        self._database_url = database_url
        self._stack = ExitStack()
        self.a, self.b = (
            self._stack.enter_context(DataCentre(name, folder, database_url, settings))
            for name in "ab"
        )

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def webhook(
        self, receiver: ReceiverThread, *event_types: str, auto_recovery: bool = False
    ) -> str:
        """Register a webhook with a rule, wait until both live paths know it, and return its id."""
        receiver.expect(secret := new_secret())
        rules = [each.live_metric("rewind_live_rules") for each in (self.a, self.b)]
        asked = {
            "url": receiver.url,
            "secret": secret,
            "eventTypes": event_types,
            "autoRecovery": auto_recovery,
        }
        answer = self.a.api.post("/webhooks", json=asked)
        assert answer.json()["status"] == "ENABLED", answer.text
        for each, before in zip((self.a, self.b), rules, strict=True):
            until(lambda: each.live_metric("rewind_live_rules") > before, "a rule is known")  # noqa: B023
        return str(answer.json()["id"])

    @property
    def is_level(self) -> bool:
        """Report whether all live paths and mirrors are idle."""
        mirrors = (self.to_a, self.to_b)
        # The live path writes to mirrored topics, so the mirrors are checked again.
        return (
            all(each.is_level for each in mirrors)
            and all(each.is_settled() for each in (self.a, self.b))
            and all(each.is_level for each in mirrors)
        )

    def lose_a(self) -> None:
        """Kill data centre `a` and both mirrors."""
        self.a.kill()
        for mirror in (self.to_a, self.to_b):
            mirror.kill()

    def _open(self) -> None:
        migrate(self._database_url)
        with closing(Store.open(self._database_url)) as store:
            _, key = issue_key(store, "default", Scope.OPERATOR, "")
        centres = (self.a, self.b)
        for each in centres:
            each.launch()
        self.to_b, self.to_a = (
            self._stack.enter_context(Mirror(source, destination, self._folder))
            for source, destination in (centres, centres[::-1])
        )
        for mirror in (self.to_a, self.to_b):
            mirror.launch()
        for each in centres:
            each.wait(key)
        for mirror in (self.to_a, self.to_b):
            mirror.until_says(MIRROR_READY)
