"""The index that finds events in the log by their ids."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from migrations.resumable import create_index, create_table

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; the index is filled from the log."""
    create_table(
        "event_index_states",
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("claimed_until_ms", sa.BigInteger, nullable=False),
        sa.Column(
            "positions", sa.Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb"), nullable=False
        ),
        sa.PrimaryKeyConstraint("origin", name="pk_event_index_states"),
    )
    create_table(
        "event_index_chunks",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("entry_count", sa.Integer, nullable=False),
        sa.Column("indexed_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_event_index_chunks"),
    )
    create_index("event_index_chunks", ["origin", "id"])
    create_table(
        "event_index_blocks",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("chunk_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("entries", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("number", "chunk_id", name="pk_event_index_blocks"),
    )
    create_index("event_index_blocks", ["chunk_id"])


def downgrade() -> None:
    """Drop the tables; the index is built again after the next upgrade."""
    op.drop_table("event_index_blocks")
    op.drop_table("event_index_chunks")
    op.drop_table("event_index_states")
