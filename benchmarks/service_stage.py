"""A broker and a migrated database, on which processes of the service can be started."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection, insert, select

from app.config import Settings
from app.domain.model import NewReplay, NewWebhook, Replay, Webhook
from app.domain.rules import DEFAULT_RULE, Rule
from app.domain.states import TERMINAL, ReplayState
from app.log.event_records import EventRecords
from app.log.replay_requests import ReplayRequestPublisher
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.services.event_index import EventIndexer
from app.store import Store, migrate
from app.store.event_index import EventIndex
from app.store.rule_kinds import digest_of_kind
from app.store.secret_keys import keys_of, new_secret_key
from app.store.tables import rules, webhooks
from app.variables import PREFIX
from app.webhooks.signing import new_secret
from benchmarks.delivery_history import History, write_history
from benchmarks.running_broker import RunningBroker, fresh_broker, until
from benchmarks.running_process import RunningProcess, running_process
from logbroker.client.partitioner import partition_for_key

_READY_LINES: Final[Mapping[str, str]] = {
    "api": "rewind api ready on ",
    "live": "rewind live ready",
    "worker": "rewind worker ready",
}


_RATE_LIMIT: Final = "1000000"

UNLIMITED: Final[Mapping[str, str]] = {
    "open_requests_per_minute": _RATE_LIMIT,
    "operator_requests_per_minute": _RATE_LIMIT,
}
"""Settings with which no request of a benchmark meets a rate limit of the API."""


class ServiceStage(NamedTuple):
    """The broker, the database and the settings of a service; topics and tables exist."""

    broker: RunningBroker
    store: Store
    settings: Settings
    replay_requests: ReplayRequestPublisher

    def enabled_webhook(self, url: str) -> Webhook:
        """Create an enabled webhook at `url`, without verification."""
        webhook = self.store.create_webhook(NewWebhook(url, "bench", new_secret()))
        return self.store.enable_webhook(webhook.id, url)

    def add_rule(self, webhook: Webhook, event_type: str) -> None:
        """Select events of a type for a webhook."""
        self.store.put_rule(Rule(webhook.id, DEFAULT_RULE, (event_type,)))

    def many_webhooks(self, url: str, kinds: Sequence[str]) -> None:
        """Create an enabled webhook at a path of `url` for each event type, in one transaction."""
        template = self.enabled_webhook(url)
        self.store.database.write(_copy_webhook, template, kinds)

    def webhooks_in_separate_partitions(self, urls: Sequence[str]) -> list[Webhook]:
        """Create a webhook for each URL, each in a different partition."""
        by_partition: dict[int, Webhook] = {}
        for url in urls:
            webhook, count = self.enabled_webhook(url), len(by_partition)
            while len(by_partition) == count:
                by_partition.setdefault(self.partition_of(webhook), webhook)
                webhook = self.enabled_webhook(url)
        return list(by_partition.values())

    def partition_of(self, webhook: Webhook) -> int:
        """Return the partition of the webhook's deliveries."""
        return partition_for_key(webhook.id.encode(), self.settings.partitions)

    def load(self, history: History) -> None:
        """Write a history to its empty partition, and wait until consumers can read it."""
        write_history(self.broker.address, history)
        self.broker.wait_for_end(DELIVERY_LOG, history.records, history.partition)

    def index_all(self) -> None:
        """Add every record of the log to the index of events and to the minute index."""
        with closing(EventRecords(self.settings)) as records:
            index = EventIndex(self.store.database, self.settings.origin)
            indexer = EventIndexer(
                self.store, index, records, self.settings.retention_ms, unindexed_min=1
            )
            while indexer.index_new().unindexed:
                pass

    def create_replay(self, new: NewReplay) -> Replay:
        """Create a replay, as the API does."""
        replay, _ = self.store.create_replay(new)
        self.replay_requests.publish(replay.id)
        return replay

    def is_over(self, replay: Replay, events: int) -> bool:
        """Return whether a replay is completed, and check that it has delivered every event."""
        now = self.store.replay(replay.id)
        if now.state not in TERMINAL:
            return False
        assert now.state is ReplayState.COMPLETED, (now.state, now.error)
        assert now.counts.delivered == events, (now.counts, events)
        return True

    def wait_for(self, replay: Replay, events: int) -> None:
        """Wait until a replay is completed."""
        until(lambda: self.is_over(replay, events), f"{replay.id} is completed", period_s=0.05)

    def process(self, name: str) -> AbstractContextManager[RunningProcess]:
        """Run `rewind NAME`; its output is printed if the benchmark fails."""
        return running_process(["-m", "app", name], _READY_LINES[name], _environment(self.settings))


def _copy_webhook(connection: Connection, template: Webhook, kinds: Sequence[str]) -> None:
    """Insert a copy of a webhook with a rule for each event type."""
    (row,) = connection.execute(select(webhooks).where(webhooks.c.id == template.id)).mappings()
    copies = {f"wh_bench{number:016d}": kind for number, kind in enumerate(kinds)}
    connection.execute(
        insert(webhooks),
        [
            {
                **row,
                "id": key,
                "url": f"{template.url}/{kind}",
                "secret": keys_of(connection).encrypt(key, template.secret),
            }
            for key, kind in copies.items()
        ],
    )
    connection.execute(
        insert(rules),
        [
            {
                "webhook_id": key,
                "name": DEFAULT_RULE,
                "value": json.dumps({"eventTypes": [kind], "where": {}}),
                "kind": digest_of_kind(Rule(key, DEFAULT_RULE, (kind,))),
                "revision": row["revision"],
            }
            for key, kind in copies.items()
        ],
    )


@contextmanager
def service_stage(folder: Path, **settings: str) -> Iterator[ServiceStage]:
    """Run a fresh broker with SQLite, in a new folder under `folder`."""
    with fresh_broker(folder) as broker:
        data_dir = broker.data_dir / "service"
        loaded = Settings.load(
            {},
            data_dir=str(data_dir),
            bootstrap_servers=broker.bootstrap_servers,
            allow_private_targets="true",
            port="0",
            secret_key=new_secret_key(),
            **settings,
        )
        _prepare(loaded)
        requests = ReplayRequestPublisher(broker.bootstrap_servers, {})
        with closing(Store.of(loaded)) as store, closing(requests):
            yield ServiceStage(broker, store, loaded, requests)


def _prepare(settings: Settings) -> None:
    """Create the tables and the topics."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    migrate(settings.database)
    ensure_topics(
        settings.bootstrap_servers,
        partitions=settings.partitions,
        retention_ms=settings.retention_ms,
    )


def _environment(settings: Settings) -> dict[str, str]:
    """Return the environment from which a process reads these settings."""
    given = settings.model_dump(exclude={"kafka_properties"})
    return dict(os.environ) | {f"{PREFIX}{name.upper()}": str(each) for name, each in given.items()}
