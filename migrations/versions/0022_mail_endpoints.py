"""Notice endpoints that are e-mail addresses: which notices are mails, and sent confirmations."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, create_table

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; stored notices are no mails, nor are those of the previous version."""
    add_column(
        "account_notices",
        sa.Column("is_mail", sa.Integer, nullable=False, server_default=sa.text("0")),
    )
    create_table(
        "mail_confirmations",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("account_id", sa.String(40), nullable=False),
        sa.Column("endpoint_id", sa.String(40), nullable=False),
        sa.Column("address", sa.String(254), nullable=False),
        sa.Column("code_digest", sa.String(64), nullable=False),
        sa.Column("sent_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mail_confirmations"),
    )
    create_index("mail_confirmations", ["account_id", "sent_ms"])
    create_index("mail_confirmations", ["endpoint_id"])
    create_index("mail_confirmations", ["sent_ms"])


def downgrade() -> None:
    """Delete mail endpoints and their notices, which the previous version would send by HTTP."""
    op.execute(sa.text("DELETE FROM account_notices WHERE is_mail = 1"))
    op.execute(sa.text("DELETE FROM notice_endpoints WHERE url LIKE 'mailto:%'"))
    op.drop_table("mail_confirmations")
    op.drop_column("account_notices", "is_mail")
