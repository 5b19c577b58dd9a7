"""The previous secret of a notice endpoint, which also signs during its grace period."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are NULL without a rotation."""
    add_column("notice_endpoints", sa.Column("previous_secret", sa.String(255)))
    add_column("notice_endpoints", sa.Column("previous_secret_until_ms", sa.BigInteger))


def downgrade() -> None:
    """Drop the columns; only the current secrets sign."""
    op.drop_column("notice_endpoints", "previous_secret_until_ms")
    op.drop_column("notice_endpoints", "previous_secret")
