"""The store: all reads and writes of the database."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Self

from app.config import Settings
from app.domain.account_notices import AccountNotice
from app.domain.model import (
    Claim,
    Counts,
    Failure,
    Lease,
    OffsetRange,
    Replay,
    ReplayNotice,
    UnreadableCounts,
)
from app.domain.states import ReplayEvent
from app.store import (
    account_notices,
    archive,
    claim_queue,
    console_sessions,
    late_arrivals,
    leases,
    mail_confirmations,
    minute_index,
    notices,
    overview,
    owner_moves,
    recovery_replays,
    replay_filters,
    retention,
    routing,
    secret_rotation,
    statistics,
    undelivered,
    waiting_work,
)
from app.store import accounts as account_table
from app.store import failures as failure_table
from app.store import grants as grant_table
from app.store import handovers as handover_table
from app.store import live_backlogs as backlog_table
from app.store import notice_endpoints as endpoint_table
from app.store import pipeline_runs as run_table
from app.store import processes as process_table
from app.store import recoveries as recovery_table
from app.store import replays as replay_table
from app.store import resends as resend_table
from app.store import rules as rule_table
from app.store import samples as sample_table
from app.store import scheduled_retries as retry_table
from app.store import tallies as tally_table
from app.store import webhooks as webhook_table
from app.store.claim_queue import WaitingAccount
from app.store.engine import Database
from app.store.errors import SchemaOutdated
from app.store.methods import autocommits, reads, writes
from app.store.schema import applied_revision
from app.store.secret_keys import NO_KEYS, SecretKeys, load_secret_keys
from app.store.tables import REVISION

MOVED_PER_TRANSACTION: Final = 100
"""A transaction that moves so many replays locks their rows for some tens of milliseconds."""

CLAIMERS_MAX: Final = 8
"""Claims of one account that may run at the same moment without counting under a lock."""


class Store:
    """The state of the service in one database. Thread-safe; a call is a transaction.

    Most methods are functions of this package without their connection; see there. Calls block, so
    coroutines run them in a thread. All raise `StoreUnavailable` if the database does not answer.
    `of_account` is the account of the caller; None sees all accounts. `actor` is the id of the
    caller's API key, for the record. Methods that take a `Lease` return False if it is gone: the
    replay was taken over, paused, cancelled or finished, and the worker must stop.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._has_checked_keys = False

    @classmethod
    def open(cls, url: str, keys: SecretKeys = NO_KEYS) -> Self:
        """A store on sqlite:///FILE or mysql+pymysql://..., which connects on first use.

        Without keys it is for callers that do not use webhooks.
        """
        return cls(Database(url, keys))

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """A store on the database of the settings, which encrypts the secrets of webhooks.

        Raises:
            SecretKeyMissing: see `load_secret_keys`.
        """
        return cls.open(settings.database, load_secret_keys(settings))

    def close(self) -> None:
        """Close all connections of the pool."""
        self.database.close()

    def check_schema(self) -> None:
        """Return if the database answers and has the schema of this version.

        Raises:
            SchemaOutdated: it has another schema.
        """
        found = self.database.read(applied_revision)
        if found != REVISION:
            raise SchemaOutdated(found, REVISION)

    def check(self) -> None:
        """Return if the database has the schema of this version, and secrets are readable.

        Raises:
            SchemaOutdated: it has another schema.
            SecretKeyMissing: secrets of webhooks have keys that the store does not have.
        """
        self.check_schema()
        if not self._has_checked_keys:
            # Once: it reads all webhooks.
            self.database.read(secret_rotation.check_secret_keys)
            self._has_checked_keys = True

    def reencrypt_secrets(self, *, only_text: bool = False) -> int:
        """Encrypt all secrets with the first key; returns how many rows were changed.

        With `only_text`, only those that are stored as text; see `secret_rotation`.
        """
        total = 0
        for table in secret_rotation.SECRET_COLUMNS:
            after: str | None = ""
            while after is not None:
                count, after = self.database.write(
                    secret_rotation.reencrypt_secrets, table, after, only_text=only_text
                )
                total += count
        return total

    count_secrets_by_key = reads(secret_rotation.count_secrets_by_key)

    create_account = writes(account_table.create_account)
    account_named = reads(account_table.find_account)
    accounts = reads(account_table.list_accounts)
    create_key = writes(account_table.create_key)
    find_key = reads(account_table.find_key)
    keys = reads(account_table.list_keys)
    revoke_key = writes(account_table.revoke_key)
    check_account = reads(account_table.check_account)
    find_unknown_accounts = reads(account_table.find_unknown_accounts)
    open_session = writes(console_sessions.open_session)
    find_session_key = reads(console_sessions.find_session_key)
    close_session = writes(console_sessions.close_session)

    create_webhook = writes(routing.create_webhook)
    webhook = reads(webhook_table.get_webhook)
    webhooks = reads(webhook_table.list_webhooks)
    find_webhook_accounts = reads(webhook_table.find_webhook_accounts)
    update_webhook = writes(routing.update_webhook)
    enable_webhook = writes(webhook_table.enable_webhook)
    record_failed_verification = writes(webhook_table.record_failed_verification)
    disable_webhook = writes(webhook_table.disable_webhook)
    rotate_secret = writes(webhook_table.rotate_secret)
    record_failing_since = writes(webhook_table.record_failing_since)
    save_recovery = autocommits(recovery_table.save_recovery)
    drop_recovery = autocommits(recovery_table.drop_recovery)
    recoveries = reads(recovery_table.list_recoveries)
    find_unfinished = reads(recovery_table.find_unfinished)
    finish_abandoned_recoveries = autocommits(recovery_table.finish_abandoned_recoveries)
    find_due_recoveries = reads(recovery_replays.find_due_recoveries)
    start_recovery = writes(recovery_replays.start_recovery)
    delete_webhook = writes(routing.delete_webhook)
    erase_expired_secrets = writes(retention.erase_expired_secrets)

    put_rule = writes(rule_table.put_rule)
    rule = reads(rule_table.get_rule)
    rules = reads(rule_table.list_rules)
    default_types = reads(rule_table.default_types)
    delete_rule = writes(rule_table.delete_rule)
    put_grant = writes(grant_table.put_grant)
    grant = reads(grant_table.get_grant)
    grants = reads(grant_table.list_grants)
    delete_grant = writes(grant_table.delete_grant)
    find_covered_rules = reads(grant_table.find_covered_rules)
    routing_changes = reads(routing.routing_changes)

    create_replay = writes(replay_table.create_replay)
    find_replay_by_idempotency_key = reads(replay_table.find_replay_by_idempotency_key)
    replay = reads(replay_table.get_replay)
    replays = reads(replay_filters.list_replays)
    named_replays = reads(replay_filters.list_named_replays)
    replay_ids = reads(replay_filters.list_replay_ids)
    replays_by_id = reads(replay_filters.replays_by_id)
    earlier_replays = reads(replay_filters.earlier_replays)
    active_replays_of = reads(replay_filters.active_replays_of)
    count_by_state = reads(replay_filters.count_by_state)
    moves = reads(replay_table.list_moves)
    samples = reads(sample_table.list_samples)
    sampled_above_ms = reads(sample_table.find_time_above)
    failures = reads(failure_table.list_failures)
    offsets_to_retry = reads(replay_table.offsets_to_retry)
    failed_offsets = reads(failure_table.failed_offsets)
    find_failure = reads(failure_table.find_failure)
    job_statistics = reads(statistics.job_statistics)
    awaiting_restore = reads(archive.awaiting_restore)
    record_restore = writes(archive.record_restore)
    record_missing_records = writes(archive.record_missing_records)
    delete_old_replays = writes(retention.delete_old_replays)

    def cancel_replay(
        self, replay_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> Replay:
        """Cancel the replay and return it; see `owner_moves.move_replay`."""
        return self._move(replay_id, ReplayEvent.CANCEL, of_account, actor)

    def pause_replay(
        self, replay_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> Replay:
        """Pause the replay and return it; see `owner_moves.move_replay`."""
        return self._move(replay_id, ReplayEvent.PAUSE, of_account, actor)

    def resume_replay(
        self, replay_id: str, *, of_account: str | None = None, actor: str | None = None
    ) -> Replay:
        """Resume a PAUSED or FAILED replay at its checkpoint; see `owner_moves.move_replay`."""
        return self._move(replay_id, ReplayEvent.RESUME, of_account, actor)

    _move = writes(owner_moves.move_replay)

    def move_replays(
        self,
        replay_ids: Collection[str],
        event: ReplayEvent,
        *,
        of_account: str | None = None,
        actor: str | None = None,
    ) -> int:
        """Apply PAUSE, RESUME or CANCEL to the replays that permit it, and return their number.

        In several transactions, so that workers wait only briefly for a row.
        """
        # Sorted, so that two calls with the same replays cannot deadlock.
        ids, moved = sorted(set(replay_ids)), 0
        for start in range(0, len(ids), MOVED_PER_TRANSACTION):
            chunk = ids[start : start + MOVED_PER_TRANSACTION]
            moved += self._move_chunk(chunk, event, of_account, actor)
        return moved

    _move_chunk = writes(owner_moves.move_replays)

    def claim(
        self,
        worker: str,
        lease_s: float,
        origin: str = "",
        *,
        after: str = "",
        running_max: int | None = None,
        located: Mapping[str, OffsetRange] = {},
    ) -> Claim | None:
        """Claim a replay of the next account after `after`, until `lease_s` without a heartbeat.

        It is the account's replay that has waited longest, of the worker's data centre or without
        one, which is then assigned to it. Accounts with `running_max` held replays are skipped.
        None if no replay waits, or others are claiming those that do. `located` are offsets that
        the API has just looked up for new replays, by their ids.
        """
        for waiting in self._waiting_accounts(origin, after, running_max):
            # Counting again under a lock costs two queries: only near the limit.
            is_near = running_max is not None and waiting.running + CLAIMERS_MAX >= running_max
            claim = self.database.write(
                leases.claim_from_queue,
                *(worker, lease_s, waiting.queue, origin, running_max if is_near else None),
                located,
            )
            if claim is not None:
                return claim
        return None

    def next_account(
        self, origin: str = "", *, after: str = "", running_max: int | None = None
    ) -> str | None:
        """The account whose replay `claim` would claim; None if no replay waits."""
        for waiting in self._waiting_accounts(origin, after, running_max):
            return waiting.queue.account_id
        return None

    def _waiting_accounts(
        self, origin: str, after: str, running_max: int | None
    ) -> Iterator[WaitingAccount]:
        """Each account with a waiting replay that is below its limit, once."""
        seen = set[str]()
        while True:
            waiting = self.database.read(claim_queue.find_waiting_account, origin, after)
            if waiting is None or waiting.queue.account_id in seen:
                return
            after = waiting.queue.account_id
            seen.add(after)
            if running_max is None or waiting.running < running_max:
                yield waiting

    heartbeat = autocommits(leases.heartbeat)
    begin_delivery = writes(leases.begin_delivery)

    def checkpoint(
        self,
        lease: Lease,
        offset: int,
        counts: Counts,
        failures: Sequence[Failure],
        status_counts: Mapping[str, int] | None = None,
        *,
        unreadable: UnreadableCounts | None = None,
        with_sample: bool = False,
    ) -> bool:
        """Store a checkpoint of the replay; see `leases.store_checkpoint`."""
        # Without failures autocommit suffices: a sample may be of any checkpoint.
        run = self.database.write if failures else self.database.autocommit
        return run(
            leases.store_checkpoint,
            *(lease, offset, counts, failures, status_counts),
            unreadable=unreadable or UnreadableCounts(),
            with_sample=with_sample,
        )

    store_receiver_failure = autocommits(leases.store_receiver_failure)
    complete = writes(leases.complete)
    fail = writes(leases.fail)
    fail_recovery = writes(leases.fail_recovery)
    release = writes(leases.release)
    postpone = writes(leases.postpone)
    yield_turn = writes(leases.yield_turn)

    def claim_notice(self, lease_s: float) -> ReplayNotice | None:
        """Claim a notification of an ended replay that is due; None if none is.

        Unless its result is recorded within `lease_s`, it is due again, as the next attempt.
        """
        if not self.database.read(notices.is_any_due):
            return None
        return self.database.write(notices.claim_due_notice, lease_s)

    finish_notice_attempt = autocommits(notices.finish_notice_attempt)

    create_notice_endpoint = writes(endpoint_table.create_notice_endpoint)
    notice_endpoint = reads(endpoint_table.get_notice_endpoint)
    notice_endpoints = reads(endpoint_table.list_notice_endpoints)
    enable_notice_endpoint = writes(endpoint_table.enable_notice_endpoint)
    refuse_notice_endpoint = writes(endpoint_table.refuse_notice_endpoint)
    update_notice_endpoint = writes(endpoint_table.update_notice_endpoint)
    rotate_notice_secret = writes(endpoint_table.rotate_notice_secret)
    disable_notice_endpoint = writes(endpoint_table.disable_notice_endpoint)
    delete_notice_endpoint = writes(endpoint_table.delete_notice_endpoint)

    record_confirmation_mail = writes(mail_confirmations.record_confirmation_mail)
    confirm_mail_endpoint = writes(mail_confirmations.confirm_mail_endpoint)
    delete_old_confirmations = writes(mail_confirmations.delete_old_confirmations)

    def claim_account_notice(
        self,
        lease_s: float,
        busy: Collection[str],
        busy_accounts: Collection[str] = (),
        *,
        with_mails: bool = True,
    ) -> AccountNotice | None:
        """Claim a notice of an account that is due, or None.

        It is not to an endpoint in `busy`, nor to one of an account in `busy_accounts`, and no
        mail unless `with_mails`. Unless its result is recorded within `lease_s`, it is due
        again, as the next attempt.
        """
        if busy_accounts:
            others = self.database.read(endpoint_table.list_endpoint_ids, busy_accounts)
            busy = {*busy, *others}
        is_any_due = account_notices.is_any_account_notice_due
        if not self.database.read(is_any_due, busy, with_mails=with_mails):
            return None
        claim = account_notices.claim_due_account_notice
        return self.database.write(claim, lease_s, busy, with_mails=with_mails)

    finish_account_notice = writes(account_notices.finish_account_notice)
    delete_stale_account_notices = writes(account_notices.delete_stale_account_notices)

    record_late_arrivals = writes(late_arrivals.record_late_arrivals)
    late_end_offset = reads(late_arrivals.late_end_offset)
    late_recorded_ms = reads(late_arrivals.late_recorded_ms)
    indexed_window = reads(minute_index.indexed_window)

    request_handover = writes(handover_table.request_handover)
    handovers = reads(handover_table.list_handovers)
    is_handover_acknowledged = reads(handover_table.is_handover_acknowledged)
    acknowledge_handover = autocommits(handover_table.acknowledge_handover)

    record_live_backlogs = writes(backlog_table.record_live_backlogs)
    live_backlogs = reads(backlog_table.list_live_backlogs)

    record_process_heartbeat = autocommits(process_table.record_process_heartbeat)
    remove_process = autocommits(process_table.remove_process)
    delete_dead_processes = autocommits(process_table.delete_dead_processes)
    processes = reads(process_table.list_processes)

    add_tallies = writes(tally_table.add_tallies)
    tallies = reads(tally_table.list_tallies)
    sum_tallies = reads(tally_table.sum_tallies)
    missed_hours = reads(tally_table.list_missed_hours)
    delete_tallies = writes(tally_table.delete_tallies)
    sum_tallies_by_start = reads(overview.sum_tallies_by_start)
    find_webhooks = reads(overview.find_webhooks)
    list_most_missed = reads(overview.list_most_missed)
    count_webhooks_by_health = reads(overview.count_webhooks_by_health)
    undelivered_webhooks = reads(undelivered.list_undelivered_webhooks)

    create_resends = writes(resend_table.create_resends)
    is_any_work_waiting = reads(waiting_work.is_any_work_waiting)
    is_any_resend_due = reads(resend_table.is_any_resend_due)
    claim_resends = writes(resend_table.claim_resends)
    finish_resend = writes(resend_table.finish_resend)
    release_resend = autocommits(resend_table.release_resend)
    resends = reads(resend_table.list_resends)
    resent_places = reads(resend_table.resent_places)
    pending_resends = reads(resend_table.pending_resends)
    resent_offsets = reads(resend_table.resent_offsets)
    delete_old_resends = writes(resend_table.delete_old_resends)
    add_scheduled_retries = writes(retry_table.add_scheduled_retries)
    retry_later = writes(retry_table.retry_later)
    retry_progress = reads(retry_table.list_retry_progress)
    recently_scheduled = reads(retry_table.recently_scheduled)
    retries_of_copy = reads(retry_table.retries_of_copy)
    retries_of_handover = reads(retry_table.retries_of_handover)
    take_over_retries = writes(retry_table.take_over_retries)
    waiting_retries = reads(retry_table.count_waiting_retries)

    add_pipeline_run = writes(run_table.add_pipeline_run)
    pipeline_runs = reads(run_table.list_pipeline_runs)
    latest_pipeline_runs = reads(run_table.latest_pipeline_runs)
