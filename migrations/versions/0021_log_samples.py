"""Samples of the log: records and sizes of topics, lags of consumer groups."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; they are filled from now on."""
    create_table(
        "log_sample_states",
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("minute_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("origin", name="pk_log_sample_states"),
    )
    create_table(
        "log_samples",
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("span", sa.String(16), nullable=False),
        sa.Column("start_ms", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger),
        sa.PrimaryKeyConstraint(
            "origin", "kind", "name", "span", "start_ms", name="pk_log_samples"
        ),
    )
    create_index("log_samples", ["origin", "span", "start_ms"])


def downgrade() -> None:
    """Drop the tables with what was sampled."""
    op.drop_table("log_samples")
    op.drop_table("log_sample_states")
