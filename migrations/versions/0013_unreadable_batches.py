"""What replays skipped because it cannot be read from the log."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_COLUMNS = ("unreadable_batches", "unreadable_offsets")


def upgrade() -> None:
    """Add the columns; replays of earlier versions have skipped nothing."""
    for name in _COLUMNS:
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))
        add_column("replays", column)


def downgrade() -> None:
    """Drop the columns."""
    for name in _COLUMNS:
        op.drop_column("replays", name)
