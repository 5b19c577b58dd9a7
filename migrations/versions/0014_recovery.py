"""Automatic recovery: failing webhooks, and replays that were created for them."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, create_table

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Existing webhooks recover automatically; earlier replays were requested."""
    add_column(
        "webhooks",
        sa.Column("auto_recovery", sa.Integer, nullable=False, server_default=sa.text("1")),
    )
    add_column(
        "replays",
        sa.Column("reason", sa.String(16), nullable=False, server_default="request"),
    )
    add_column("replays", sa.Column("available_from_ms", sa.BigInteger))
    create_table(
        "recoveries",
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("from_ms", sa.BigInteger, nullable=False),
        sa.Column("to_ms", sa.BigInteger, nullable=False),
        sa.Column("failed_probes", sa.Integer, nullable=False),
        sa.Column("next_probe_ms", sa.BigInteger, nullable=False),
        sa.Column("recovered_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("webhook_id", "origin", name="pk_recoveries"),
    )
    create_index("recoveries", ["origin", "recovered_ms"])


def downgrade() -> None:
    """Drop them; recoveries that are pending are forgotten."""
    op.drop_table("recoveries")
    op.drop_column("replays", "available_from_ms")
    op.drop_column("replays", "reason")
    op.drop_column("webhooks", "auto_recovery")
