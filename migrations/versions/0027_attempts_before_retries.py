"""How many attempts an event had before each scheduled retry."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; retries of the previous version have no number."""
    add_column("resends", sa.Column("attempts", sa.Integer))


def downgrade() -> None:
    """Remove it."""
    op.drop_column("resends", "attempts")
