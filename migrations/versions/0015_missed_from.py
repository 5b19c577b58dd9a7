"""The earliest missed event of an hour, so that a replay from there covers the hour."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of earlier hours it is unknown."""
    add_column(
        "delivery_tallies",
        sa.Column("missed_from_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("delivery_tallies", "missed_from_ms")
