"""The store: every question to the database and every change of it, as one call each."""

from collections.abc import Collection, Sequence
from typing import Self

from sqlalchemy import Connection

from app.replay.lateness import LateSpan
from app.replay.model import (
    Claim,
    Counts,
    Failure,
    IdempotencyKey,
    Lease,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    Webhook,
    Window,
)
from app.replay.states import ReplayState
from app.store import failures, late_arrivals, leases, replays, webhooks
from app.store.engine import Database
from app.store.errors import SchemaOutdated
from app.store.pages import PAGE_LIMIT, Page
from app.store.schema import found_revision, needed_revision


class Store:
    """What the service remembers, in one database. Thread-safe; every call is a transaction.

    Calls block: a coroutine hands them to a thread. Every one raises `StoreUnavailable` when
    the database does not answer. Methods that take a `Lease` answer False when it is gone:
    the replay was taken over, cancelled or finished, and its former holder stops.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, url: str) -> Self:
        """A store on `url`, sqlite:///FILE or mysql+pymysql://...; connects when first used."""
        return cls(Database(url))

    def close(self) -> None:
        """Close all connections; calls that still run end first."""
        self._database.close()

    def check(self) -> None:
        """Pass if the database answers and has the schema of this version.

        Raises:
            SchemaOutdated: it has another one.
        """
        found, needed = self._database.read(found_revision), needed_revision()
        if found != needed:
            raise SchemaOutdated(found, needed)

    def create_webhook(self, new: NewWebhook) -> Webhook:
        """The webhook, with an id and a secret of its own."""
        return self._database.write(lambda db: webhooks.create(db, new))

    def webhook(self, webhook_id: str) -> Webhook:
        """The webhook of this id.

        Raises:
            WebhookNotFound: it never was, or it was deleted.
        """
        return self._database.read(lambda db: webhooks.get(db, webhook_id))

    def webhooks(self, cursor: str | None = None, limit: int = PAGE_LIMIT) -> Page[Webhook]:
        """A page of the webhooks, the latest first.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(lambda db: webhooks.newest(db, cursor, limit))

    def unknown_webhooks(self, webhook_ids: Collection[str]) -> set[str]:
        """Those of the ids that no webhook has."""
        return self._database.read(lambda db: webhooks.unknown(db, webhook_ids))

    def update_webhook(
        self, webhook_id: str, url: str | None = None, description: str | None = None
    ) -> Webhook:
        """The webhook with what is not None changed.

        Raises:
            WebhookNotFound: it never was, or it was deleted.
        """
        return self._database.write(lambda db: webhooks.change(db, webhook_id, url, description))

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete the webhook, and cancel its replay if one is active.

        Who deletes a webhook wants nothing sent to it any more, from now on and in one step;
        a refusal would keep events flowing until its owner has found and cancelled the job.
        Replays of the past stay to be looked at.

        Raises:
            WebhookNotFound: it never was, or it was deleted.
        """

        def work(db: Connection) -> None:
            webhooks.delete(db, webhook_id)
            replays.cancel_active_of(db, webhook_id)

        self._database.write(work)

    def create_replay(
        self, new: NewReplay, idempotency: IdempotencyKey | None = None
    ) -> tuple[Replay, bool]:
        """The replay, and whether it is new: the same key and request give the same replay again.

        A key is known for as long as its replay is.

        Raises:
            WebhookNotFound: no such webhook.
            ActiveReplayExists: the webhook has a replay that is not over.
            IdempotencyConflict: the key was used for another request.
        """
        return self._database.write(lambda db: replays.create(db, new, idempotency))

    def replay_named_by(self, idempotency: IdempotencyKey) -> Replay | None:
        """The replay that was created under this key for this request; None when there is none.

        Raises:
            IdempotencyConflict: the key was used for another request.
        """
        return self._database.read(lambda db: replays.named_by(db, idempotency))

    def replay(self, replay_id: str) -> Replay:
        """The replay of this id.

        Raises:
            ReplayNotFound: there is none.
        """
        return self._database.read(lambda db: replays.get(db, replay_id))

    def replays(
        self,
        webhook_id: str | None = None,
        state: ReplayState | None = None,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
    ) -> Page[Replay]:
        """A page of the replays of one webhook or all, in one state or all, the latest first.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """
        return self._database.read(lambda db: replays.newest(db, webhook_id, state, cursor, limit))

    def cancel_replay(self, replay_id: str) -> Replay:
        """The replay, cancelled; its worker stops when it next writes.

        Raises:
            ReplayNotFound: there is none.
            NotCancellable: it is over, maybe cancelled already.
        """
        return self._database.write(lambda db: replays.cancel(db, replay_id))

    def failures(
        self, replay_id: str, cursor: str | None = None, limit: int = PAGE_LIMIT
    ) -> Page[Failure]:
        """A page of the records that the replay gave up, by offset.

        Raises:
            ReplayNotFound: there is no such replay.
            InvalidCursor: `cursor` is not one of a page before.
        """

        def work(db: Connection) -> Page[Failure]:
            replays.get(db, replay_id)
            return failures.in_log_order(db, replay_id, cursor, limit)

        return self._database.read(work)

    def claim(self, worker: str, lease_s: float) -> Claim | None:
        """The replay that waits longest, for `worker` alone until `lease_s` without a heartbeat.

        None when none waits, or others are just claiming those that do.
        """
        if not self._database.read(leases.is_any_claimable):
            return None
        return self._database.write(lambda db: leases.claim(db, worker, lease_s))

    def heartbeat(self, lease: Lease, lease_s: float) -> bool:
        """Keep the lease for `lease_s` from now on."""
        return self._database.write_one(lambda db: leases.heartbeat(db, lease, lease_s))

    def begin_delivery(self, lease: Lease, offsets: OffsetRange) -> bool:
        """Say which records are to be read; after a take-over, an old checkpoint is kept."""
        return self._database.write_one(lambda db: leases.begin_delivery(db, lease, offsets))

    def checkpoint(
        self, lease: Lease, offset: int, counts: Counts, failures: Sequence[Failure]
    ) -> bool:
        """Store that all below `offset` is done, with the failures since the checkpoint before.

        `counts` are totals of the whole job. May be repeated: nothing is counted twice.
        """
        write = self._database.write if failures else self._database.write_one
        return write(lambda db: leases.checkpoint(db, lease, offset, counts, failures))

    def complete(self, lease: Lease) -> bool:
        """End the replay: all records are delivered, duplicates, or listed as failed."""
        return self._database.write_one(lambda db: leases.complete(db, lease))

    def fail(self, lease: Lease, error: str) -> bool:
        """End the replay: it cannot go on, because of `error`."""
        return self._database.write_one(lambda db: leases.fail(db, lease, error))

    def release(self, lease: Lease) -> bool:
        """Give the replay back: another worker may claim it at once and goes on where it stands."""
        return self._database.write_one(lambda db: leases.release(db, lease))

    def note_late_arrivals(self, spans: Sequence[LateSpan], retention_ms: int) -> None:
        """Store where late events lie; spans older than the log keeps events are forgotten."""
        self._database.write(lambda db: late_arrivals.note(db, spans, retention_ms))

    def late_end(self, partition: int, window: Window) -> int | None:
        """The offset that all late events of the window lie below; None when there are none."""
        return self._database.read(lambda db: late_arrivals.end(db, partition, window))
