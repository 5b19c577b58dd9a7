"""The complete service on MariaDB, with a process per program, for tests of the console."""

from pathlib import Path
from typing import Any, Final

from app.domain.accounts import Scope
from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions
from app.domain.log_samples import ALL_GROUPS, ALL_TOPICS, LogSample, Series, SeriesKind
from app.domain.model import NewReplay, NewWebhook, Replay, Webhook, Window
from app.domain.options import ReplayOptions
from app.domain.windows import MINUTE_MS
from app.live import deliverer
from app.log.topics import DELIVERY_LOG
from app.store.log_samples import LogSamples
from app.webhooks.signing import new_secret
from tests.support.database.api_keys import issue_key
from tests.support.http.browser import Visitor
from tests.support.http.receiver_thread import ReceiverThread, is_event
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.service.live_service import LiveScene, now_ms

READY: Final = {"api": "rewind api ready on ", "worker": "rewind worker ready"}

SETTINGS: Final = {
    "allow_private_targets": True,
    "origin": "here",
    "server": "test",
    # Progress is shown soon, and failing deliveries are given up soon.
    "checkpoint_interval_s": 0.1,
    "heartbeat_s": 0.5,
    "poll_interval_s": 0.1,
    "retry_attempts_max": 2,
    "retry_base_s": 0.01,
    # Browsers of many tests have one address.
    "unauthorized_requests_per_minute": 1_000,
    "operator_requests_per_minute": 100_000,
    "developer_requests_per_minute": 100_000,
    "open_requests_per_minute": 100_000,
}


class ConsoleScene(LiveScene):
    """Log, database and processes of the service. The API keeps its port over restarts."""

    def __init__(self, folder: Path, broker: BrokerProcess, database_url: str) -> None:
        super().__init__(folder, broker.bootstrap_servers, database_url)
        self.broker = broker
        self.port = free_port()
        self._account_ids: dict[str, str] = {}
        self.api = self._process("api", {"port": self.port})
        self.worker = self._process("worker", {})

    def __exit__(self, *error: object) -> None:
        self.worker.__exit__(*error)
        self.api.__exit__(*error)
        super().__exit__(*error)

    @property
    def origin(self) -> str:
        """The origin of the console's URLs."""
        return f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Create tables and topics, and start API, worker and live path."""
        self.make()
        self.worker.launch()
        self.start_api()
        # Missed events are reported at once.
        self.live(live_delays_s="0")
        self.worker.until_says(READY["worker"])

    def start_api(self) -> None:
        """Start the API, and wait until it is ready."""
        self.api.start(READY["api"])

    def key(
        self, account: str = "platform", scope: Scope = Scope.OPERATOR, *, read_only: bool = False
    ) -> str:
        """Create a key and return its text."""
        key, token = issue_key(self.store, account, scope, "", is_read_only=read_only)
        self._account_ids[account] = key.account.id
        return token

    def webhook_of(
        self, account: str, receiver: ReceiverThread, options: EndpointOptions = NO_OPTIONS
    ) -> Webhook:
        """Create an ENABLED webhook for an account with a key."""
        # Several webhooks may share a receiver, whose secrets differ.
        receiver.expect(None)
        return self.webhook_at(account, receiver.url, options=options)

    def webhook_at(
        self,
        account: str,
        url: str,
        description: str = "test",
        options: EndpointOptions = NO_OPTIONS,
    ) -> Webhook:
        """Create an ENABLED webhook with a URL for an account with a key.

        It does not recover by itself: replays are requested.
        """
        account_id = self._account_ids[account]
        new = NewWebhook(
            url, description, new_secret(), account_id, auto_recovery=False, options=options
        )
        webhook = self.store.create_webhook(new)
        return self.store.enable_webhook(webhook.id, webhook.url)

    def missed(self, webhook: Webhook, *events: dict[str, Any], ago_s: float = 60) -> Window:
        """Write past events to the log. Returns the window of exactly these events."""
        at_ms = now_ms() - round(ago_s * 1_000)
        self.owe(webhook, *events, time_ms=at_ms)
        return Window(at_ms, at_ms + 1)

    def replay(
        self, webhook: Webhook, window: Window, *, origin: str = "here", **options: Any
    ) -> Replay:
        """Create a replay for a data centre. Only "here" has a worker."""
        new = NewReplay(webhook.id, window, ReplayOptions(**options), origin=origin)
        return self.store.create_replay(new)[0]

    def add_log_samples(self) -> None:
        """Add samples of the log of the last half hour, and of every ten minutes before that."""
        samples = LogSamples(self.store.database, "here")
        present = now_ms() // MINUTE_MS
        for ago in (*range(1, 30), *range(30, 720, 10)):
            start_ms = (present - ago) * MINUTE_MS
            written, lag = 10_000_000 - 7_919 * ago, 37 * ago % 101
            topics = (ALL_TOPICS, Series(SeriesKind.TOPIC, DELIVERY_LOG))
            groups = (ALL_GROUPS, Series(SeriesKind.GROUP, deliverer.GROUP))
            found = {each: LogSample(start_ms, written, 120 * written) for each in topics}
            found |= {each: LogSample(start_ms, lag) for each in groups}
            samples.add(start_ms, found)

    def _process(self, name: str, settings: dict[str, object]) -> ServerProcess:
        given = SETTINGS | settings
        given |= {"database": self._database_url, "bootstrap_servers": self.bootstrap_servers}
        given |= {"partitions": self.partitions}
        environment = {f"REWIND_{name.upper()}": str(value) for name, value in given.items()}
        command = ["-m", "app", name, "--stop-on-stdin-close"]
        return ServerProcess(command, self._folder / f"{name}.log", environment)


def sign_in(visitor: Visitor, key: str, page: str = "/console/jobs") -> None:
    """Request a page, sign in, and wait for the page."""
    visitor.go(page)
    visitor.page.get_by_label("API key").fill(key)
    visitor.page.get_by_role("button", name="Sign in").click()
    visitor.page.wait_for_url(page)


def delivered_by_replays(receiver: ReceiverThread) -> list[str]:
    """Return the sorted ids of the events that replays delivered."""
    return sorted(
        each.event_id
        for each in receiver.webhooks
        if each.replay_id is not None and is_event(each) and 200 <= each.status < 300
    )
