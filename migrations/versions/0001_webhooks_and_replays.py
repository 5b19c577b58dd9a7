"""Webhooks, replays and their failures."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the three tables."""
    _create_webhooks()
    _create_replays()
    _create_replay_failures()


def _create_webhooks() -> None:
    create_table(
        "webhooks",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("secret", sa.String(255), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("deleted_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
    )
    create_index("webhooks", ["created_ms", "id"])


def _create_replays() -> None:
    create_table(
        "replays",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("active_webhook_id", sa.String(40)),
        sa.Column("from_ms", sa.BigInteger, nullable=False),
        sa.Column("to_ms", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("claimable_ms", sa.BigInteger),
        sa.Column("log_partition", sa.Integer),
        sa.Column("start_offset", sa.BigInteger),
        sa.Column("end_offset", sa.BigInteger),
        sa.Column("checkpoint_offset", sa.BigInteger),
        sa.Column("delivered", sa.BigInteger, nullable=False),
        sa.Column("duplicates", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("started_ms", sa.BigInteger),
        sa.Column("heartbeat_ms", sa.BigInteger),
        sa.Column("finished_ms", sa.BigInteger),
        sa.Column("idempotency_digest", sa.String(64)),
        sa.Column("request_fingerprint", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_replays"),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name="fk_replays_webhook_id"),
        sa.UniqueConstraint("active_webhook_id", name="uq_replays_active_webhook_id"),
        sa.UniqueConstraint("idempotency_digest", name="uq_replays_idempotency_digest"),
    )
    create_index("replays", ["claimable_ms", "id"], "ix_replays_claimable")
    for columns in (
        ["created_ms", "id"],
        ["webhook_id", "created_ms", "id"],
        ["state", "created_ms", "id"],
    ):
        create_index("replays", columns)


def _create_replay_failures() -> None:
    create_table(
        "replay_failures",
        sa.Column("replay_id", sa.String(40), nullable=False),
        sa.Column("record_offset", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("replay_id", "record_offset", name="pk_replay_failures"),
        sa.ForeignKeyConstraint(["replay_id"], ["replays.id"], name="fk_replay_failures_replay_id"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("replay_failures", "replays", "webhooks"):
        op.drop_table(table)
