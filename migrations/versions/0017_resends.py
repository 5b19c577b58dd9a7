"""Deliveries that are sent once more on request."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the API fills it."""
    create_table(
        "resends",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("log_partition", sa.Integer, nullable=False),
        sa.Column("record_offset", sa.BigInteger, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("due_ms", sa.BigInteger),
        sa.Column("claims", sa.Integer, nullable=False),
        sa.Column("worker", sa.String(64)),
        sa.Column("finished_ms", sa.BigInteger),
        sa.Column("duration_us", sa.BigInteger),
        sa.Column("response_status", sa.Integer),
        sa.Column("reason", sa.Text),
        sa.Column("response", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_resends"),
    )
    create_index("resends", ["origin", "status", "webhook_id", "due_ms"])
    create_index("resends", ["webhook_id", "log_partition", "record_offset"])
    create_index("resends", ["webhook_id", "status", "created_ms"])
    create_index("resends", ["created_ms"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("resends")
