"""The events of webhooks that wait for a live retry."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; live processes fill it."""
    create_table(
        "live_backlogs",
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("waiting", sa.Integer, nullable=False),
        sa.Column("retrying", sa.Integer, nullable=False),
        sa.Column("is_recovering", sa.Integer, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("failed_ms", sa.BigInteger, nullable=False),
        sa.Column("next_attempt_ms", sa.BigInteger, nullable=False),
        sa.Column("updated_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("webhook_id", "origin", name="pk_live_backlogs"),
    )
    create_index("live_backlogs", ["updated_ms"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("live_backlogs")
