"""Replays of the archive, and the restores that they await."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; existing replays read the log."""
    for column in (
        sa.Column("source", sa.String(16), nullable=False, server_default="log"),
        sa.Column("awaits", sa.Text),
        sa.Column("restored_ms", sa.BigInteger),
    ):
        add_column("replays", column)
    create_index("replays", ["source", "finished_ms"])


def downgrade() -> None:
    """Drop the columns and the index."""
    op.drop_index("ix_replays_source_finished_ms", "replays")
    for column in ("source", "awaits", "restored_ms"):
        op.drop_column("replays", column)
