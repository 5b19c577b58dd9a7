"""Alembic's entry point: applies the migrations that a database lacks."""

import os

from alembic import context

from app.config import Settings
from app.store import event_index_tables, log_sample_tables  # noqa: F401 - they declare tables
from app.store.schema import migrating
from app.store.tables import metadata

url = context.config.attributes.get("url") or Settings.load(os.environ).database
known = {script.revision for script in context.script.walk_revisions()}

with migrating(url, known) as connection:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
