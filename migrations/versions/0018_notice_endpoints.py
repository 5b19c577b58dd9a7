"""Endpoints of accounts for notices of their webhooks and replays, and the notices to send."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; no account has endpoints."""
    create_table(
        "notice_endpoints",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("account_id", sa.String(40), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("event_types", sa.Text, nullable=False),
        sa.Column("secret", sa.String(255), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("status_reason", sa.Text),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("validated_ms", sa.BigInteger),
        sa.Column("delivered_ms", sa.BigInteger),
        sa.Column("failed_ms", sa.BigInteger),
        sa.Column("failure", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_notice_endpoints"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_notice_endpoints_account_id_accounts"
        ),
    )
    create_index("notice_endpoints", ["account_id", "created_ms", "id"])
    create_index("notice_endpoints", ["created_ms", "id"])
    create_table(
        "account_notices",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("endpoint_id", sa.String(40), nullable=False),
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("due_ms", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", "endpoint_id", name="pk_account_notices"),
    )
    create_index("account_notices", ["due_ms"])
    create_index("account_notices", ["endpoint_id"])
    create_index("account_notices", ["webhook_id"])


def downgrade() -> None:
    """Drop the tables; notices that are not sent are forgotten."""
    op.drop_table("account_notices")
    op.drop_table("notice_endpoints")
