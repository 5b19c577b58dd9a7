"""SQL building blocks of all tables: the database's clock, new ids, comparisons, upsert."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Column,
    ColumnCollection,
    ColumnElement,
    Connection,
    Insert,
    Table,
    and_,
    func,
)
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

IDS_PER_QUERY: Final = 500
"""Older versions of SQLite accept at most 999 parameters."""

TEXT_CHARS_MAX: Final = 4_000
"""Longer texts are cut: a TEXT column of MySQL holds 65,535 bytes."""

_ID_BYTES: Final = 12
"""Random bytes of an id: two of 1e12 ids are equal with a probability of 1e-5."""


# Named like an SQL function.
class now_ms(FunctionElement[int]):  # noqa: N801
    """The database's time when the statement began, in milliseconds since 1970, UTC.

    Leases use it, so they do not depend on the clocks of the workers. All uses in one statement
    are equal. A statement that waited for a lock has the time before its wait, so a lease may end
    a little early, never late.
    """

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _now_ms_on_sqlite(_element: now_ms, _compiler: SQLCompiler, **_: object) -> str:
    # SQLite counts days from noon, 24 November 4714 BC; 1970 began 2440587.5 days later.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(now_ms, "mysql")
def _now_ms_on_mysql(_element: now_ms, _compiler: SQLCompiler, **_: object) -> str:
    # UNIX_TIMESTAMP would use the session's time zone, and fail in the hour that occurs twice.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"


def ms_from_now(pause_s: float) -> ColumnElement[int]:
    """The time `pause_s` after the statement began."""
    return now_ms() + round(pause_s * 1_000)


def new_id(prefix: str) -> str:
    """A new random id that begins with `prefix`."""
    return prefix + secrets.token_hex(_ID_BYTES)


def exactly(column: Column[str], text: str | BindParameter[str]) -> ColumnElement[bool]:
    """Whether `column`, which holds ASCII, equals `text`; MySQL's `=` ignores trailing spaces.

    A webhook found by another spelling of its id would have its events looked up under that key.
    """
    return and_(column == text, func.length(column) == func.length(text))


def larger(
    connection: Connection, one: ColumnElement[int], other: ColumnElement[int]
) -> ColumnElement[int]:
    """The larger of two values; the databases have different names for it."""
    function = func.max if connection.dialect.name == "sqlite" else func.greatest
    return function(one, other)


def smaller(
    connection: Connection, one: ColumnElement[int], other: ColumnElement[int]
) -> ColumnElement[int]:
    """The smaller of two values."""
    function = func.min if connection.dialect.name == "sqlite" else func.least
    return function(one, other)


def upsert(
    connection: Connection,
    table: Table,
    changes: Callable[[ColumnCollection[str, Any]], Mapping[str, Any]],
) -> Insert:
    """An INSERT that updates the existing row if the primary key exists.

    `changes` maps the columns of the new row to the values to set. MySQL assigns them in the order
    of the table, and an expression sees columns that were assigned before it as changed.
    """
    if connection.dialect.name == "sqlite":
        on_sqlite = sqlite.insert(table)
        return on_sqlite.on_conflict_do_update(
            index_elements=list(table.primary_key), set_=changes(on_sqlite.excluded)
        )
    on_mysql = mysql.insert(table)
    return on_mysql.on_duplicate_key_update(dict(changes(on_mysql.inserted)))
