"""The database's clock in SQL, so that leases do not depend on the clocks of the workers."""

from sqlalchemy import BigInteger, ColumnElement
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


# A class named as an SQL function is.
class now_ms(FunctionElement[int]):  # noqa: N801
    """Milliseconds since 1970, UTC, when the statement began; the same all over a statement.

    A statement that waited for a lock has a time from before its wait, so a lease may end
    a little early by it, never late.
    """

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _sqlite(_element: now_ms, _compiler: SQLCompiler, **_: object) -> str:
    # SQLite counts days from noon, 24 November 4714 BC; 1970 began 2440587.5 days after.
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(now_ms, "mysql")
def _mysql(_element: now_ms, _compiler: SQLCompiler, **_: object) -> str:
    # UNIX_TIMESTAMP would read the time in the session's zone and fail in its double hour.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"


def ms_from_now(pause_s: float) -> ColumnElement[int]:
    """The time `pause_s` after the statement began."""
    return now_ms() + round(pause_s * 1_000)
