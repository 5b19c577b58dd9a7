"""When a replay made the last attempt of an event that it gave up, and which worker made it."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both; they are unknown for stored failures, and for those of the previous version."""
    add_column("replay_failures", sa.Column("last_attempt_ms", sa.BigInteger))
    add_column("replay_failures", sa.Column("worker", sa.Text))


def downgrade() -> None:
    """Drop them."""
    op.drop_column("replay_failures", "worker")
    op.drop_column("replay_failures", "last_attempt_ms")
