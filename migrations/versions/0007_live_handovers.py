"""The events that replays take over from the live path."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    create_table(
        "live_handovers",
        sa.Column("replay_id", sa.String(40), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("log_partition", sa.Integer, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in (
                *("start_offset", "end_offset", "from_ms", "to_ms"),
                *("requested_ms", "created_ms"),
            )
        ),
        sa.Column("event_types", sa.Text, nullable=False),
        sa.Column("acknowledged_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("replay_id", name="pk_live_handovers"),
    )
    create_index("live_handovers", ["origin", "created_ms"])
    create_index("live_handovers", ["to_ms"])


def downgrade() -> None:
    """Drop the table; the live path then sends what replays took over."""
    op.drop_table("live_handovers")
