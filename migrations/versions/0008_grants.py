"""Grants: which events an account may receive."""

import json
import logging
from hashlib import sha256

import sqlalchemy as sa
from alembic import op

from migrations.resumable import create_index, create_table

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_log = logging.getLogger("rewind.migrations")

EVERYTHING = "everything"
NAMES_LOGGED_MAX = 20


def upgrade() -> None:
    """Create the table; each account that exists gets a grant for every event, as it had."""
    create_table(
        "grants",
        sa.Column("account_id", sa.String(40), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.Text),
        sa.Column("kind", sa.String(64)),
        sa.Column("content", sa.String(64)),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("deleted_ms", sa.BigInteger),
        sa.PrimaryKeyConstraint("account_id", "name", name="pk_grants"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_grants_account_id"),
    )
    for columns in (["account_id", "kind"], ["account_id", "content"], ["revision"]):
        create_index("grants", columns)
    # Before the last step, so that a migration that is killed here grants again.
    _grant_everything()
    create_index("grants", ["deleted_ms"])


def _grant_everything() -> None:
    accounts = sa.table("accounts", sa.column("id"), sa.column("name"))
    columns = ("account_id", "name", "value", "kind", "content", "revision")
    grants = sa.table("grants", *map(sa.column, columns))
    without = sa.select(accounts).where(accounts.c.id.not_in(sa.select(grants.c.account_id)))
    found = op.get_bind().execute(without.order_by(accounts.c.name)).all()
    # The digests of grants without conditions for the glob `*`.
    digest = sha256(json.dumps([["*"], []]).encode()).hexdigest()
    rows = [
        {
            "account_id": account.id,
            "name": EVERYTHING,
            "value": json.dumps({"eventTypes": ["*"], "where": {}}),
            "kind": digest,
            "content": digest,
            "revision": 0,
        }
        for account in found
    ]
    if rows:
        op.bulk_insert(grants, rows)
    if rows and _is_in_use():
        _log.warning(
            "accounts-granted-everything",
            extra={
                "accounts": len(rows),
                "names": [account.name for account in found[:NAMES_LOGGED_MAX]],
                "grant": EVERYTHING,
                "reason": "accounts created before grants existed still receive all events that"
                " their rules match; `rewind grants` limits them",
            },
        )


def _is_in_use() -> bool:
    """Whether the database has an API key or a webhook; a new one has neither."""
    tables = [sa.table(name, sa.column("id")) for name in ("api_keys", "webhooks")]
    return any(
        op.get_bind().execute(sa.select(table.c.id).limit(1)).first() is not None
        for table in tables
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("grants")
