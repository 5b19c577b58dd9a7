"""The tables of this version; `migrations` creates and upgrades them.

Times are milliseconds since 1970, UTC, by the database's clock. Text is compared byte by byte,
except that MySQL ignores trailing spaces: see `sql.exactly`.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Computed,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.options import ReplayReason, Source
from app.setting_checks import ORIGIN_CHARS_MAX

NAMING: Final = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}

# With MySQL's default collation, "a" equals "A", also in a unique key.
TABLE_OPTIONS: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}

CLAIM_INDEX: Final = "ix_replays_origin_claim_account_id"
ACCOUNT_STATE_INDEX: Final = "ix_replays_account_id_state_created_ms_id"
NOTICE_INDEX: Final = "ix_replays_notice_due_ms"
ID_CHARS: Final = 40
DIGEST_CHARS: Final = 64
NAME_CHARS: Final = 64
SOURCE_CHARS: Final = 16

metadata: Final = MetaData(naming_convention=NAMING)

REVISION: Final = "0028"
"""The last of `migrations/`, which results in the tables below."""

accounts: Final = Table(
    "accounts",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    Column("name", String(NAME_CHARS), nullable=False, unique=True),
    Column("created_ms", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

api_keys: Final = Table(
    "api_keys",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    Column("account_id", String(ID_CHARS), ForeignKey(accounts.c.id), nullable=False),
    Column("scope", String(16), nullable=False),
    Column("description", Text, nullable=False),
    # SHA-256 of the token, without salt: the token is random.
    Column("digest", String(DIGEST_CHARS), nullable=False, unique=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
    **TABLE_OPTIONS,
)


# Later columns have a default, because the previous version inserts without them.
def _account_id() -> Column[str]:
    return Column("account_id", String(ID_CHARS), nullable=False, server_default=DEFAULT_ACCOUNT)


webhooks: Final = Table(
    "webhooks",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    _account_id(),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("secret", String(255), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    # The row of a deleted webhook remains without a secret, because replays refer to it.
    Column("deleted_ms", BigInteger),
    Column("validation", String(8), nullable=False, server_default="ping"),
    Column("status", String(16), nullable=False, server_default="ENABLED"),
    Column("status_reason", Text),
    Column("previous_secret", String(255)),
    Column("previous_secret_until_ms", BigInteger),
    Column("validated_ms", BigInteger),
    Column("failing_since_ms", BigInteger),
    # Encrypted, see `endpoint_options`.
    Column("options", Text),
    # See `revisions`.
    Column("revision", BigInteger, nullable=False, server_default=text("0")),
    Column("auto_recovery", Integer, nullable=False, server_default=text("1")),
    Index(None, "created_ms", "id"),
    Index(None, "account_id", "created_ms", "id"),
    Index(None, "revision"),
    **TABLE_OPTIONS,
)

rules: Final = Table(
    "rules",
    metadata,
    Column("webhook_id", String(ID_CHARS), ForeignKey(webhooks.c.id), primary_key=True),
    Column("name", String(NAME_CHARS), primary_key=True),
    # JSON {"eventTypes": [...], "where": {...}}; NULL after the deletion, so that readers with a
    # copy learn of it. The row is deleted a day later.
    Column("value", Text),
    # See `rules.digest_of_kind`; NULL after the deletion.
    Column("kind", String(DIGEST_CHARS)),
    Column("revision", BigInteger, nullable=False),
    Column("deleted_ms", BigInteger),
    Index(None, "webhook_id", "kind"),
    Index(None, "revision"),
    Index(None, "deleted_ms"),
    **TABLE_OPTIONS,
)

grants: Final = Table(
    "grants",
    metadata,
    Column("account_id", String(ID_CHARS), ForeignKey(accounts.c.id), primary_key=True),
    Column("name", String(NAME_CHARS), primary_key=True),
    # JSON as in `rules`; NULL after the deletion.
    Column("value", Text),
    # See `grants.find_covered_rules`; NULL after the deletion.
    Column("kind", String(DIGEST_CHARS)),
    Column("content", String(DIGEST_CHARS)),
    Column("revision", BigInteger, nullable=False),
    Column("deleted_ms", BigInteger),
    Index(None, "account_id", "kind"),
    Index(None, "account_id", "content"),
    Index(None, "revision"),
    Index(None, "deleted_ms"),
    **TABLE_OPTIONS,
)

revisions: Final = Table(
    "revisions",
    metadata,
    # "routing": the revision of the last change of a webhook, rule or grant, see `revisions`.
    # "forgotten": the last revision of the deleted rules and grants whose rows no longer exist.
    Column("name", String(16), primary_key=True),
    Column("value", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)


# The data centre to whose log the offsets of a row refer. Empty in rows of a version without data
# centres; each data centre treats these as its own.
def _origin() -> Column[str]:
    return Column("origin", String(ORIGIN_CHARS_MAX), nullable=False, server_default="")


replays: Final = Table(
    "replays",
    metadata,
    Column("id", String(ID_CHARS), primary_key=True),
    Column("webhook_id", String(ID_CHARS), ForeignKey(webhooks.c.id), nullable=False),
    # `webhook_id` until the replay ends, then NULL: unique, so at most one is active.
    Column("active_webhook_id", String(ID_CHARS), unique=True),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("lease_epoch", Integer, nullable=False, default=0),
    Column("worker", Text),
    # The time from which a worker can claim it: its creation while OPEN, the end of the lease while
    # held; NULL after the end, and while it awaits its records. One column, so that a claim reads
    # one index in order and locks one row. See `claim_queue` for replays of the archive.
    Column("claimable_ms", BigInteger),
    Column("log_partition", Integer),
    Column("start_offset", BigInteger),
    Column("end_offset", BigInteger),
    Column("checkpoint_offset", BigInteger),
    Column("delivered", BigInteger, nullable=False, default=0),
    Column("duplicates", BigInteger, nullable=False, default=0),
    Column("failed", BigInteger, nullable=False, default=0),
    Column("error", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("heartbeat_ms", BigInteger),
    Column("finished_ms", BigInteger),
    # SHA-256 of the Idempotency-Key, which may have any length.
    Column("idempotency_digest", String(DIGEST_CHARS), unique=True),
    Column("request_fingerprint", Text),
    _account_id(),
    # JSON; NULL if all have their defaults.
    Column("options", Text),
    Column("retry_of", String(ID_CHARS)),
    Column("claims_in_vain", Integer, nullable=False, server_default=text("0")),
    Column("waiting_for", Text),
    # The time without a worker since its start.
    Column("idle_ms", BigInteger, nullable=False, server_default=text("0")),
    # When the notification of the end is due; NULL before the end, and after the last attempt. Set
    # by the statement that ends the replay.
    Column("notice", String(16), nullable=False, server_default="rewind"),
    Column("notice_due_ms", BigInteger),
    Column("notice_attempts", Integer, nullable=False, server_default=text("0")),
    _origin(),
    # The topic of the offsets, see `Source`.
    Column("source", String(SOURCE_CHARS), nullable=False, server_default=Source.LOG),
    # JSON {"partition", "below", "missing"} until its records are restored.
    Column("awaits", Text),
    Column("restored_ms", BigInteger),
    # JSON {"200": 17, "none": 1}: events of `delivered` and `failed` by the HTTP status of the last
    # response; NULL if unknown.
    Column("status_counts", Text),
    # JSON, see `ReceiverFailure`; NULL if the receiver accepts events. Valid while ONGOING.
    Column("receiver_failure", Text),
    # What was skipped below the checkpoint because it cannot be read.
    Column("unreadable_batches", BigInteger, nullable=False, server_default=text("0")),
    Column("unreadable_offsets", BigInteger, nullable=False, server_default=text("0")),
    Column("reason", String(16), nullable=False, server_default=ReplayReason.REQUEST),
    # The start of what a recovery found in the log, if that is not the start of its window.
    Column("available_from_ms", BigInteger),
    Index(None, "account_id", "created_ms", "id"),
    Index(ACCOUNT_STATE_INDEX, "account_id", "state", "created_ms", "id"),
    # Active replays have no end: those of the archive are adjacent in this index.
    Index(None, "source", "finished_ms"),
    Index(NOTICE_INDEX, "notice_due_ms"),
    # The account while the replay can be claimed, so that claims skip from account to account.
    Column(
        "claim_account_id",
        String(ID_CHARS),
        Computed("CASE WHEN claimable_ms IS NOT NULL THEN account_id END"),
    ),
    # The origin first, so that claims do not scan replays that wait for other data centres.
    Index(CLAIM_INDEX, "origin", "claim_account_id", "claimable_ms", "id"),
    # The previous version uses it in its claims.
    Index("ix_replays_origin_claimable", "origin", "claimable_ms", "id"),
    Index(None, "created_ms", "id"),
    Index(None, "webhook_id", "created_ms", "id"),
    Index(None, "state", "created_ms", "id"),
    **TABLE_OPTIONS,
)


def written_columns() -> list[Column[Any]]:
    """The columns of `replays` that are not computed, for copies of rows."""
    return [column for column in replays.c if column.computed is None]


live_handovers: Final = Table(
    "live_handovers",
    metadata,
    # Without a foreign key: a row matters until the live path is past its offsets.
    Column("replay_id", String(ID_CHARS), primary_key=True),
    Column("origin", String(ORIGIN_CHARS_MAX), nullable=False),
    Column("webhook_id", String(ID_CHARS), nullable=False),
    Column("log_partition", Integer, nullable=False),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger, nullable=False),
    # The creation of the replay, and of the row.
    Column("requested_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    # JSON: a list of globs.
    Column("event_types", Text, nullable=False),
    Column("acknowledged_ms", BigInteger),
    Index(None, "origin", "created_ms"),
    Index(None, "to_ms"),
    **TABLE_OPTIONS,
)

live_backlogs: Final = Table(
    "live_backlogs",
    metadata,
    Column("webhook_id", String(ID_CHARS), primary_key=True),
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    Column("waiting", Integer, nullable=False),
    Column("retrying", Integer, nullable=False),
    Column("is_recovering", Integer, nullable=False),
    # The last failed attempt.
    Column("status", Integer),
    Column("reason", Text, nullable=False),
    Column("failed_ms", BigInteger, nullable=False),
    Column("next_attempt_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Index(None, "updated_ms"),
    **TABLE_OPTIONS,
)

recoveries: Final = Table(
    "recoveries",
    metadata,
    # Webhooks whose receivers keep failing, and whose missed events a replay will send.
    Column("webhook_id", String(ID_CHARS), primary_key=True),
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    # Event times of what was missed, see `Recovery`.
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger, nullable=False),
    Column("failed_probes", Integer, nullable=False),
    Column("next_probe_ms", BigInteger, nullable=False),
    # When the receiver accepted events again: the replay is due. NULL while it fails.
    Column("recovered_ms", BigInteger),
    Index(None, "origin", "recovered_ms"),
    **TABLE_OPTIONS,
)

replay_failures: Final = Table(
    "replay_failures",
    metadata,
    Column("replay_id", String(ID_CHARS), ForeignKey(replays.c.id), primary_key=True),
    Column("record_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("event_id", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("status", Integer),
    Column("reason", Text, nullable=False),
    # The duration of the last attempt, and the beginning of its response body.
    Column("duration_ms", Integer),
    Column("response", Text),
    # When the last attempt ended, and the worker that made it.
    Column("last_attempt_ms", BigInteger),
    Column("worker", Text),
    **TABLE_OPTIONS,
)


# SQLite generates ids only for this type.
def _number() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True)


replay_moves: Final = Table(
    "replay_moves",
    metadata,
    _number(),
    Column("replay_id", String(ID_CHARS), ForeignKey(replays.c.id), nullable=False),
    Column("event", String(16), nullable=False),
    # The state and the lease epoch after the event.
    Column("state", String(16), nullable=False),
    Column("lease_epoch", Integer, nullable=False),
    # The worker, the id of a developer's API key, or `operator`; NULL if unknown.
    Column("actor", Text),
    Column("reason", Text),
    Column("at_ms", BigInteger, nullable=False),
    Index(None, "replay_id", "id"),
    **TABLE_OPTIONS,
)

replay_samples: Final = Table(
    "replay_samples",
    metadata,
    Column("replay_id", String(ID_CHARS), ForeignKey(replays.c.id), primary_key=True),
    Column("at_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("checkpoint_offset", BigInteger, nullable=False),
    Column("delivered", BigInteger, nullable=False),
    Column("duplicates", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    **TABLE_OPTIONS,
)

console_sessions: Final = Table(
    "console_sessions",
    metadata,
    # SHA-256 of the cookie's value.
    Column("digest", String(DIGEST_CHARS), primary_key=True),
    Column("key_id", String(ID_CHARS), ForeignKey(api_keys.c.id), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index(None, "key_id", "created_ms"),
    Index(None, "expires_ms"),
    **TABLE_OPTIONS,
)

processes: Final = Table(
    "processes",
    metadata,
    # "api", "live" or "worker"; the name is HOST:PID, a worker's HOST:PID:ID.
    Column("kind", String(16), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("origin", String(ORIGIN_CHARS_MAX), nullable=False),
    # JSON, see `Process`.
    Column("details", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("heartbeat_ms", BigInteger, nullable=False),
    Index(None, "heartbeat_ms"),
    **TABLE_OPTIONS,
)

TOOK_COLUMNS: Final = (
    *("within_50_ms", "within_100_ms", "within_250_ms", "within_500_ms"),
    *("within_1000_ms", "within_2500_ms", "within_5000_ms", "longer"),
)

TALLY_COUNTS: Final = ("delivered", "failed", "left_over", "disabled", *TOOK_COLUMNS)
TALLY_START_INDEX: Final = "ix_delivery_tallies_span_start_ms"

delivery_tallies: Final = Table(
    "delivery_tallies",
    metadata,
    Column("webhook_id", String(ID_CHARS), primary_key=True),
    # "settled": five minutes, by the time of outcomes. "event": an hour of event time.
    Column("span", String(8), primary_key=True),
    Column("start_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("origin", String(ORIGIN_CHARS_MAX), primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in TALLY_COUNTS),
    # See `DeliveryTally`.
    Column("missed_until_ms", BigInteger, nullable=False),
    Column("missed_at_ms", BigInteger, nullable=False),
    Column("missed_from_ms", BigInteger, nullable=False, server_default=text("0")),
    Index(TALLY_START_INDEX, "span", "start_ms"),
    **TABLE_OPTIONS,
)

pipeline_runs: Final = Table(
    "pipeline_runs",
    metadata,
    _number(),
    Column("job", String(32), nullable=False),
    # What the job processed: a topic, a table.
    Column("subject", String(255), nullable=False),
    Column("outcome", String(16), nullable=False),
    # JSON, see `PipelineRun`.
    Column("summary", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("finished_ms", BigInteger, nullable=False),
    Index(None, "job", "subject", "id"),
    **TABLE_OPTIONS,
)

late_arrivals: Final = Table(
    "late_arrivals",
    metadata,
    _number(),
    Column("log_partition", Integer, nullable=False),
    Column("from_ms", BigInteger, nullable=False),
    Column("to_ms", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("noted_ms", BigInteger, nullable=False),
    _origin(),
    # All columns of the lookup; the entries of a partition end with its highest offset.
    Index(None, "log_partition", "origin", "end_offset", "from_ms", "to_ms"),
    Index(None, "to_ms"),
    **TABLE_OPTIONS,
)
