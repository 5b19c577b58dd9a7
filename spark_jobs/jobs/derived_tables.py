"""Tables that jobs make of other tables: what each commit replaces, and what it names."""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.derived_files import write_files
from spark_jobs.tables import Position, Snapshot, Table, open_table

_JOB: Final = "job"
"""In the position of a table: which job replaces its days."""


def quarantine_of(uri: str) -> str:
    """Where a job keeps what it could not read, beside the table at a URI."""
    return f"{uri.rstrip('/')}_quarantine"


def open_source(uri: str) -> tuple[Table, Snapshot]:
    """A table that a job reads, and as what it reads it.

    Raises:
        InvalidOption: there is none.
    """
    table = open_table(uri)
    head = table.head()
    if head.version == 0:
        raise InvalidOption(f"table is {uri}, where none has been loaded yet")
    return table, head


def open_report(uri: str, kind: str) -> tuple[Table, Snapshot]:
    """The table of a job that replaces days, to be written to.

    Raises:
        InvalidOption: it is another job's, whose days would be removed.
    """
    table = open_table(uri)
    head = table.head()
    if head.position and head.position.get(_JOB) != kind:
        raise InvalidOption(f"table is {uri}, which another job keeps; {kind} needs one of its own")
    return table, head


def replace_day(
    rows: DataFrame,
    uri: str,
    contract: StructType,
    day: date,
    *,
    kind: str,
    position: Position,
    report: Mapping[str, Any],
) -> int:
    """Make rows all that a table has of a day, by one commit; the table's version.

    Raises:
        InvalidOption: the table is another job's.
        RunSuperseded: another run committed meanwhile; what was written is not seen.
    """
    table, base = open_report(uri, kind)
    run = table.new_run()
    added = write_files(rows, uri, run, contract, date=day.isoformat())
    return table.commit(
        base,
        kind=kind,
        run=run,
        position={**position, _JOB: kind},
        added=added,
        removed=[file.path for file in base.files if file.date == day.isoformat()],
        report=report,
    )
