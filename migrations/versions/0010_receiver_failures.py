"""What a replay shows while its receiver fails."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is NULL for all replays until a worker writes it."""
    add_column("replays", sa.Column("receiver_failure", sa.Text))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("replays", "receiver_failure")
