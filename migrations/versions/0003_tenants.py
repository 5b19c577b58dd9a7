"""Accounts, API keys, rules, the status of webhooks, and options of replays."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, create_table, insert_row

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

WEBHOOK_COLUMNS: tuple[str, ...] = (
    "account_id",
    "validation",
    "status",
    "status_reason",
    "previous_secret",
    "previous_secret_until_ms",
    "validated_ms",
    "failing_since_ms",
    "revision",
)
REPLAY_COLUMNS: tuple[str, ...] = (
    "account_id",
    "options",
    "retry_of",
    "claims_in_vain",
    "waiting_for",
    "idle_ms",
    "notice",
    "notice_due_ms",
    "notice_attempts",
)


def upgrade() -> None:
    """Create the tables and columns; existing rows get the default account."""
    _create_accounts()
    _create_api_keys()
    _extend_webhooks()
    _create_rules()
    _create_revisions()
    _extend_replays()


def _create_accounts() -> None:
    create_table(
        "accounts",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_accounts"),
        sa.UniqueConstraint("name", name="uq_accounts_name"),
    )
    insert_row("accounts", "id", id="acc_default", name="default", created_ms=0)


def _create_api_keys() -> None:
    create_table(
        "api_keys",
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("account_id", sa.String(40), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("revoked_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_api_keys_account_id"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )


def _account_id() -> "sa.Column[str]":
    # Without a foreign key: SQLite cannot add one with a default to an existing table.
    return sa.Column("account_id", sa.String(40), nullable=False, server_default="acc_default")


def _extend_webhooks() -> None:
    for column in (
        _account_id(),
        sa.Column("validation", sa.String(8), nullable=False, server_default="ping"),
        sa.Column("status", sa.String(16), nullable=False, server_default="ENABLED"),
        sa.Column("status_reason", sa.Text),
        sa.Column("previous_secret", sa.String(255)),
        sa.Column("previous_secret_until_ms", sa.BigInteger),
        sa.Column("validated_ms", sa.BigInteger),
        sa.Column("failing_since_ms", sa.BigInteger),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    ):
        add_column("webhooks", column)
    for columns in (["account_id", "created_ms", "id"], ["revision"]):
        create_index("webhooks", columns)


def _create_rules() -> None:
    create_table(
        "rules",
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.Text),
        sa.Column("kind", sa.String(64)),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("deleted_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("webhook_id", "name", name="pk_rules"),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhooks.id"], name="fk_rules_webhook_id"),
    )
    for columns in (["webhook_id", "kind"], ["revision"], ["deleted_ms"]):
        create_index("rules", columns)


def _create_revisions() -> None:
    create_table(
        "revisions",
        sa.Column("name", sa.String(16), nullable=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_revisions"),
    )
    insert_row("revisions", "name", name="routing", value=1)
    insert_row("revisions", "name", name="forgotten", value=0)


def _extend_replays() -> None:
    for column in (
        _account_id(),
        sa.Column("options", sa.Text),
        sa.Column("retry_of", sa.String(40)),
        sa.Column("claims_in_vain", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("waiting_for", sa.Text),
        sa.Column("idle_ms", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        sa.Column("notice", sa.String(16), nullable=False, server_default="rewind"),
        sa.Column("notice_due_ms", sa.BigInteger),
        sa.Column("notice_attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
    ):
        add_column("replays", column)
    for columns in (["account_id", "created_ms", "id"], ["notice_due_ms"]):
        create_index("replays", columns)


def downgrade() -> None:
    """Drop the tables and columns."""
    for index in ("ix_replays_notice_due_ms", "ix_replays_account_id_created_ms_id"):
        op.drop_index(index, "replays")
    for column in REPLAY_COLUMNS:
        op.drop_column("replays", column)
    for table in ("revisions", "rules"):
        op.drop_table(table)
    for index in ("ix_webhooks_revision", "ix_webhooks_account_id_created_ms_id"):
        op.drop_index(index, "webhooks")
    for column in WEBHOOK_COLUMNS:
        op.drop_column("webhooks", column)
    for table in ("api_keys", "accounts"):
        op.drop_table(table)
