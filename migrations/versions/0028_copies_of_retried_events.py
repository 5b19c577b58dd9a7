"""Where the copies of an event are that waits for a scheduled retry."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; retries of the previous version have no copies."""
    add_column("resends", sa.Column("copies", sa.Text))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("resends", "copies")
