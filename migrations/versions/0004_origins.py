"""The data centre of replays and late arrivals."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, drop_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LATE_INDEX = "ix_late_arrivals_log_partition_origin_end_offset_from_ms_to_ms"
LATE_INDEX_BEFORE = "ix_late_arrivals_log_partition_end_offset_from_ms_to_ms"


def upgrade() -> None:
    """Add the columns, empty in existing rows, and their indexes."""
    for table in ("replays", "late_arrivals"):
        add_column(table, sa.Column("origin", sa.String(64), nullable=False, server_default=""))
    # The index without it remains: the previous version forces it.
    create_index("replays", ["origin", "claimable_ms", "id"], "ix_replays_origin_claimable")
    columns = ["log_partition", "origin", "end_offset", "from_ms", "to_ms"]
    create_index("late_arrivals", columns, LATE_INDEX)
    drop_index("late_arrivals", LATE_INDEX_BEFORE)


def downgrade() -> None:
    """Drop the columns and indexes."""
    columns = ["log_partition", "end_offset", "from_ms", "to_ms"]
    create_index("late_arrivals", columns, LATE_INDEX_BEFORE)
    op.drop_index(LATE_INDEX, "late_arrivals")
    op.drop_index("ix_replays_origin_claimable", "replays")
    for table in ("late_arrivals", "replays"):
        op.drop_column(table, "origin")
