"""What is particular to the requests to one webhook: headers, authentication, timeout, limits."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, which is encrypted; it is NULL for webhooks without options."""
    add_column("webhooks", sa.Column("options", sa.Text))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("webhooks", "options")
