"""The steps of migrations; each does nothing if it was done before.

MySQL commits at every DDL statement, so a migration that is killed there is partly done. The next
`rewind migrate` runs it again, and continues at the first missing step.
"""

from typing import Any, Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem

TABLE_OPTIONS: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}


def create_table(name: str, *items: SchemaItem) -> None:
    """Create the table with all its items, unless it exists."""
    if not _found().has_table(name):
        op.create_table(name, *items, **TABLE_OPTIONS)


def add_column(table: str, column: "sa.Column[Any]") -> None:
    """Add the column unless it exists."""
    if column.name not in {found["name"] for found in _found().get_columns(table)}:
        op.add_column(table, column)


def create_index(table: str, columns: list[str], name: str | None = None) -> None:
    """Create the index unless it exists; the default name has the names of its columns."""
    name = name or "_".join(["ix", table, *columns])
    if name not in {found["name"] for found in _found().get_indexes(table)}:
        op.create_index(name, table, columns)


def drop_index(table: str, name: str) -> None:
    """Drop the index if it exists."""
    if name in {found["name"] for found in _found().get_indexes(table)}:
        op.drop_index(name, table)


def insert_row(table: str, key: str, **values: object) -> None:
    """Insert the row unless one exists with its value of the column `key`."""
    columns = sa.table(table, *map(sa.column, values))
    is_there = sa.select(columns).where(columns.c[key] == values[key])
    if op.get_bind().execute(is_there).first() is None:
        op.execute(columns.insert().values(**values))


def _found() -> sa.Inspector:
    # A new one each time: an inspector caches what it reads.
    return sa.inspect(op.get_bind())
