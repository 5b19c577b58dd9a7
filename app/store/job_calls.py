"""The store as owners of replays see it, as workers do, and as the operator does."""

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from app.domain.model import (
    AwaitingRestore,
    Claim,
    Counts,
    Failure,
    IdempotencyKey,
    JobStatistics,
    Lease,
    NewReplay,
    Notice,
    OffsetRange,
    Replay,
)
from app.domain.states import ReplayEvent
from app.store import archive, failures, leases, notices, owner_moves, replays, statistics
from app.store.calls import Calls
from app.store.pages import PAGE_LIMIT, Page


class ReplayCalls(Calls):
    """Replays as those see them who ask for them.

    `of_account` is the account that asks; None may see all. All that take a replay's id raise
    `ReplayNotFound` for one that never was, or is another account's. `actor` is the id of the key
    that asks for a move, for the record.
    """

    def create_replay(
        self,
        new: NewReplay,
        idempotency: IdempotencyKey | None = None,
        *,
        of_account: str | None = None,
        actor: str | None = None,
    ) -> tuple[Replay, bool]:
        """The replay, and whether it is new: the same key and request give the same replay again.

        A key is known for as long as its replay is, and each account has keys of its own.

        Raises:
            WebhookNotFound: no such webhook, or it is another account's.
            ActiveReplayExists: the webhook has a replay that is not over.
            IdempotencyConflict: the key was used for another request.
            ReplayNotOver: the replay whose failures are asked for is not over.
            NothingToRetry: it has none.
        """
        return self._database.write(
            lambda db: replays.create(db, new, idempotency, of_account, actor)
        )

    def replay_named_by(
        self, idempotency: IdempotencyKey, *, of_account: str | None = None
    ) -> Replay | None:
        """The replay that was created under this key for this request; None when there is none.

        Raises:
            IdempotencyConflict: the key was used for another request.
        """
        return self._database.read(lambda db: replays.named_by(db, idempotency, of_account))

    def replay(self, replay_id: str, *, of_account: str | None = None) -> Replay:
        """The replay of this id."""
        return self._database.read(lambda db: replays.get(db, replay_id, of_account))

    def cancel_replay(
        self, replay_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> Replay:
        """The replay, cancelled; its worker stops when it next writes.

        Raises:
            IllegalMove: it is over, maybe cancelled already.
        """
        return self._move(replay_id, ReplayEvent.CANCEL, of_account, actor)

    def pause_replay(
        self, replay_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> Replay:
        """The replay, PAUSED until it is resumed; its worker stops when it next writes.

        Raises:
            IllegalMove: it is over, or PAUSED already.
        """
        return self._move(replay_id, ReplayEvent.PAUSE, of_account, actor)

    def resume_replay(
        self, replay_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> Replay:
        """The replay, which a worker may claim again and goes on where it stands.

        Raises:
            IllegalMove: it is not PAUSED.
        """
        return self._move(replay_id, ReplayEvent.RESUME, of_account, actor)

    def _move(
        self, replay_id: str, event: ReplayEvent, of_account: str | None, actor: str | None
    ) -> Replay:
        return self._database.write(
            lambda db: owner_moves.move(db, replay_id, event, of_account, actor)
        )

    def failures(
        self,
        replay_id: str,
        cursor: str | None = None,
        limit: int = PAGE_LIMIT,
        *,
        of_account: str | None = None,
    ) -> Page[Failure]:
        """A page of the records that the replay gave up, by offset.

        Raises:
            InvalidCursor: `cursor` is not one of a page before.
        """

        def work(db: Connection) -> Page[Failure]:
            replays.get(db, replay_id, of_account)
            return failures.in_log_order(db, replay_id, cursor, limit)

        return self._database.read(work)

    def failed_offsets(self, replay_id: str, after: int, limit: int) -> tuple[int, ...]:
        """The offsets beyond `after` of the records that it gave up, ascending."""
        return self._database.read(lambda db: failures.offsets(db, replay_id, after, limit))

    def awaiting_restore(self, origin: str, limit: int) -> AwaitingRestore:
        """The replays of a data centre's archive that wait, and what of it is still needed."""
        return self._database.read(lambda db: archive.awaiting(db, origin, limit))

    def restored(self, replay_id: str, offsets: OffsetRange, *, actor: str | None = None) -> Replay:
        """The replay, whose records lie at `offsets` of `delivery_archive`: it waits for a worker.

        To say so again changes nothing.

        Raises:
            NothingToRestore: it reads the log, has its records elsewhere, or is over.
        """
        return self._database.write(lambda db: archive.restored(db, replay_id, offsets, actor))

    def restore_is_missing(self, replay_id: str, text: str, *, actor: str | None = None) -> Replay:
        """The replay, which waits on, and says what of its records could not be found.

        Raises:
            NothingToRestore: see `restored`.
        """
        return self._database.write(lambda db: archive.missing(db, replay_id, text, actor))

    def job_statistics(self, origin: str = "") -> JobStatistics:
        """All replays in numbers; those by data centre tell of `origin` in any case."""
        return self._database.read(lambda db: statistics.of_jobs(db, origin))


class WorkerCalls(Calls):
    """Replays as workers see them. Methods that take a `Lease` answer False when it is gone."""

    def claim(self, worker: str, lease_s: float, origin: str = "") -> Claim | None:
        """The replay that waits longest, for `worker` alone until `lease_s` without a heartbeat.

        One of the worker's own data centre, or of nobody in particular, which then becomes its
        own. None when none waits, or others are just claiming those that do.
        """
        for queue in self._database.read(lambda db: leases.queues(db, origin)):
            take = partial(leases.claim, worker=worker, lease_s=lease_s, queue=queue, origin=origin)
            if (claim := self._database.write(take)) is not None:
                return claim
        return None

    def heartbeat(self, lease: Lease, lease_s: float) -> bool:
        """Keep the lease for `lease_s` from now on."""
        return self._database.write_one(lambda db: leases.heartbeat(db, lease, lease_s))

    def begin_delivery(self, lease: Lease, offsets: OffsetRange) -> bool:
        """Say which records are to be read; after a take-over, an old checkpoint is kept."""
        return self._database.write(lambda db: leases.begin_delivery(db, lease, offsets))

    def checkpoint(
        self,
        lease: Lease,
        offset: int,
        counts: Counts,
        failures: Sequence[Failure],
        statuses: Mapping[str, int] | None = None,
        *,
        with_sample: bool = False,
    ) -> bool:
        """Store that all below `offset` is done, with the failures since the checkpoint before.

        `counts` and `statuses` (see `Replay.status_counts`) are totals of the whole job. May be
        repeated: nothing is counted twice. Also taken once the replay was paused or cancelled, as
        the last word of who worked on it. With a sample, if one is due.
        """
        # A sample is of whatever checkpoint there is: it needs no transaction with this one.
        write = self._database.write if failures else self._database.write_one
        return write(
            lambda db: leases.checkpoint(
                db, lease, offset, counts, failures, statuses, with_sample=with_sample
            )
        )

    def complete(self, lease: Lease) -> bool:
        """End the replay: all records are delivered, duplicates, or listed as failed."""
        return self._database.write(lambda db: leases.complete(db, lease))

    def fail(self, lease: Lease, error: str) -> bool:
        """End the replay: it cannot go on, because of `error`."""
        return self._database.write(lambda db: leases.fail(db, lease, error))

    def release(self, lease: Lease) -> bool:
        """Give the replay back: another worker may claim it at once and goes on where it stands."""
        return self._database.write(lambda db: leases.release(db, lease))

    def postpone(self, lease: Lease, reason: str, pause_s: float) -> bool:
        """Give the replay back for `pause_s`: it waits for what `reason` says in words."""
        return self._database.write(lambda db: leases.postpone(db, lease, reason, pause_s))

    def claim_notice(self, lease_s: float) -> Notice | None:
        """A replay whose end is to be told to its webhook now; None when there is none.

        Unless the caller says within `lease_s` what became of it, it is handed out again, with
        the next number of attempt.
        """
        if not self._database.read(notices.is_any_due):
            return None
        return self._database.write(lambda db: notices.claim(db, lease_s))

    def notice_told(self, replay_id: str, attempt: int) -> None:
        """The attempt of this number was taken; nothing if there was a later one since."""
        self._database.write_one(lambda db: notices.told(db, replay_id, attempt))

    def notice_later(self, replay_id: str, attempt: int, pause_s: float | None) -> None:
        """The attempt of this number failed: another is due in `pause_s`, or none if None."""
        self._database.write_one(lambda db: notices.later(db, replay_id, attempt, pause_s))
