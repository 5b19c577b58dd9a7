"""Histories of replays without host names, process ids and ids of operators' keys."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_KEYS = sa.table("api_keys", sa.column("id"), sa.column("scope"))
_MOVES = sa.table("replay_moves", sa.column("actor"), sa.column("reason"))
_REPLAYS = sa.table("replays", sa.column("worker"), sa.column("state"))

_ENDED = ("COMPLETED", "FAILED", "CANCELLED")


def upgrade() -> None:
    """Replace the names in the rows that exist."""
    operators = sa.select(_KEYS.c.id).where(_KEYS.c.scope == "operator")
    _replace(_MOVES, _MOVES.c.actor.in_(operators), actor="operator")
    # Workers were HOST:PID:ID; no key's id has a colon.
    _replace(_MOVES, _MOVES.c.actor.like("%:%"), actor="worker")
    takes_over = _MOVES.c.reason.like("no heartbeat from %:%")
    _replace(_MOVES, takes_over, reason="no heartbeat from a worker")
    # The worker of another replay may still run it, under its name.
    has_ended = _REPLAYS.c.state.in_(_ENDED)
    _replace(_REPLAYS, has_ended & _REPLAYS.c.worker.like("%:%"), worker="worker")


def _replace(table: sa.TableClause, condition: sa.ColumnElement[bool], **values: str) -> None:
    """Set values of rows, if there are any."""
    found = sa.select(sa.literal(1)).select_from(table).where(condition).limit(1)
    if op.get_bind().execute(found).first() is not None:
        op.execute(sa.update(table).where(condition).values(**values))


def downgrade() -> None:
    """Change nothing: earlier versions read any names."""
