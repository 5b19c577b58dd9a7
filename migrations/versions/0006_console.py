"""Tables of the console: moves and samples of replays, tallies, processes, sessions, job runs."""

import sqlalchemy as sa
from alembic import op

from migrations.resumable import add_column, create_index, create_table

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES: tuple[str, ...] = (
    "pipeline_runs",
    "delivery_tallies",
    "processes",
    "console_sessions",
    "replay_samples",
    "replay_moves",
)


def upgrade() -> None:
    """Create the tables and columns; they are empty for existing replays."""
    add_column("replays", sa.Column("status_counts", sa.Text))
    create_index("replays", ["account_id", "state", "created_ms", "id"])
    add_column("replay_failures", sa.Column("duration_ms", sa.Integer))
    add_column("replay_failures", sa.Column("response", sa.Text))
    _create_replay_moves()
    _create_replay_samples()
    _create_console_sessions()
    _create_processes()
    _create_delivery_tallies()
    _create_pipeline_runs()


def _create_replay_moves() -> None:
    create_table(
        "replay_moves",
        sa.Column("id", _number(), nullable=False),
        sa.Column("replay_id", sa.String(40), nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("actor", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_replay_moves"),
        sa.ForeignKeyConstraint(["replay_id"], ["replays.id"], name="fk_replay_moves_replay_id"),
    )
    create_index("replay_moves", ["replay_id", "id"])


def _number() -> "sa.types.TypeEngine[int]":
    # SQLite generates ids only for this type.
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _create_replay_samples() -> None:
    create_table(
        "replay_samples",
        sa.Column("replay_id", sa.String(40), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("checkpoint_offset", sa.BigInteger, nullable=False),
        sa.Column("delivered", sa.BigInteger, nullable=False),
        sa.Column("duplicates", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("replay_id", "at_ms", name="pk_replay_samples"),
        sa.ForeignKeyConstraint(["replay_id"], ["replays.id"], name="fk_replay_samples_replay_id"),
    )


def _create_console_sessions() -> None:
    create_table(
        "console_sessions",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(40), nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_console_sessions"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_console_sessions_key_id"),
    )
    create_index("console_sessions", ["key_id", "created_ms"])
    create_index("console_sessions", ["expires_ms"])


def _create_processes() -> None:
    create_table(
        "processes",
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_processes"),
    )
    create_index("processes", ["heartbeat_ms"])


def _create_delivery_tallies() -> None:
    create_table(
        "delivery_tallies",
        sa.Column("webhook_id", sa.String(40), nullable=False),
        sa.Column("span", sa.String(8), nullable=False),
        sa.Column("start_ms", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("origin", sa.String(64), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in (
                *("delivered", "failed", "left_over", "disabled"),
                *("within_50_ms", "within_100_ms", "within_250_ms", "within_500_ms"),
                *("within_1000_ms", "within_2500_ms", "within_5000_ms", "longer"),
                *("missed_until_ms", "missed_at_ms"),
            )
        ),
        sa.PrimaryKeyConstraint(
            "webhook_id", "span", "start_ms", "origin", name="pk_delivery_tallies"
        ),
    )
    create_index("delivery_tallies", ["span", "start_ms"])


def _create_pipeline_runs() -> None:
    create_table(
        "pipeline_runs",
        sa.Column("id", _number(), nullable=False),
        sa.Column("job", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("finished_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pipeline_runs"),
    )
    create_index("pipeline_runs", ["job", "subject", "id"])


def downgrade() -> None:
    """Drop the tables and columns."""
    for table in TABLES:
        op.drop_table(table)
    for column in ("duration_ms", "response"):
        op.drop_column("replay_failures", column)
    op.drop_index("ix_replays_account_id_state_created_ms_id", "replays")
    op.drop_column("replays", "status_counts")
