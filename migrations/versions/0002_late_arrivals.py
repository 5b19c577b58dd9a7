"""Late arrivals: events that arrived in the log long after their event time."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    create_table(
        "late_arrivals",
        # SQLite generates ids only for this type.
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("log_partition", sa.Integer, nullable=False),
        sa.Column("from_ms", sa.BigInteger, nullable=False),
        sa.Column("to_ms", sa.BigInteger, nullable=False),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.Column("noted_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_late_arrivals"),
    )
    for columns in (["log_partition", "end_offset", "from_ms", "to_ms"], ["to_ms"]):
        create_index("late_arrivals", columns)


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("late_arrivals")
