"""The minute index: where partitions of `delivery_log` have the last record of each minute."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0026"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; they are filled from the log, with the records that are new."""
    create_table(
        "minute_index_ranges",
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("log_partition", sa.Integer, nullable=False),
        sa.Column("start_offset", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.Column("newest_offset", sa.BigInteger),
        sa.Column("newest_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("origin", "log_partition", name="pk_minute_index_ranges"),
    )
    create_table(
        "minute_index_entries",
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("log_partition", sa.Integer, nullable=False),
        sa.Column("minute_ms", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "origin", "log_partition", "minute_ms", name="pk_minute_index_entries"
        ),
    )
    create_index("minute_index_entries", ["origin", "log_partition", "end_offset"])


def downgrade() -> None:
    """Drop the tables; replays read to the end that the log alone yields."""
    op.drop_table("minute_index_entries")
    op.drop_table("minute_index_ranges")
