"""INSERT of a row that may be there already, in the words of each database."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnCollection, Connection, Insert, Table
from sqlalchemy.dialects import mysql, sqlite

Offered = ColumnCollection[str, Any]
"""The columns of the row that was to be inserted."""


def insert_or_change(
    connection: Connection, table: Table, changes: Callable[[Offered], Mapping[str, Any]]
) -> Insert:
    """A statement that inserts a row, or where its primary key is taken, changes that row.

    `changes` gives the new values of columns; MySQL assigns them in the order of the table, and
    what comes later reads what came before as already changed.
    """
    if connection.dialect.name == "sqlite":
        on_sqlite = sqlite.insert(table)
        return on_sqlite.on_conflict_do_update(
            index_elements=list(table.primary_key), set_=changes(on_sqlite.excluded)
        )
    on_mysql = mysql.insert(table)
    return on_mysql.on_duplicate_key_update(dict(changes(on_mysql.inserted)))
