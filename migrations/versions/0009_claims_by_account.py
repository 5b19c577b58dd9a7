"""Claims of replays by account."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, drop_index

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INDEX = "ix_replays_origin_claim_account_id"
EXPRESSION = "CASE WHEN claimable_ms IS NOT NULL THEN account_id END"


def upgrade() -> None:
    """Add the column and its index, and drop the index of claims before data centres."""
    # SQLite can only add virtual columns. MariaDB can corrupt an index of them.
    is_stored = op.get_bind().dialect.name != "sqlite"
    computed = sa.Computed(EXPRESSION, persisted=is_stored)
    add_column("replays", sa.Column("claim_account_id", sa.String(40), computed))
    create_index("replays", ["origin", "claim_account_id", "claimable_ms", "id"], INDEX)
    drop_index("replays", "ix_replays_claimable")


def downgrade() -> None:
    """Drop the column and its index."""
    create_index("replays", ["claimable_ms", "id"], "ix_replays_claimable")
    op.drop_index(INDEX, "replays")
    op.drop_column("replays", "claim_account_id")
