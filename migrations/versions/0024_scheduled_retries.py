"""Scheduled retries: resends that the live path creates for events whose attempts have failed."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, drop_index

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add their columns; the resends of the previous version were requested."""
    add_column("resends", sa.Column("retry_number", sa.Integer))
    add_column("resends", sa.Column("event_ms", sa.BigInteger))
    add_column("resends", sa.Column("event_type", sa.Text))
    create_index("resends", ["origin", "due_ms"])


def downgrade() -> None:
    """Delete scheduled retries, which the previous version would send once, and as resends."""
    op.execute(sa.text("DELETE FROM resends WHERE retry_number IS NOT NULL"))
    drop_index("resends", "ix_resends_origin_due_ms")
    for column in ("retry_number", "event_ms", "event_type"):
        op.drop_column("resends", column)
