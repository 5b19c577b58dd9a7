"""Tables that a streaming query adds to: each of its micro-batches once, however often Spark tries.

The position of such a table names the query, which Spark keeps in its checkpoint, and the last
micro-batch that was added. Spark makes the same micro-batch of the same offsets and state.
"""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark_jobs.errors import InvalidOption
from spark_jobs.jobs.derived_files import write_files
from spark_jobs.tables import DataFile, Position, Snapshot, open_table


class StreamTable:
    """One table, and one query that adds to it; compactions may come between."""

    def __init__(self, uri: str, contract: StructType, kind: str, time: str) -> None:
        """`time` is the column whose bounds are told of each file."""
        self.uri = uri
        self._contract = contract
        self._kind = kind
        self._time = time
        self._table = open_table(uri)

    def before(self, query: str, batch: int) -> Snapshot | None:
        """The table, to add a micro-batch to; None where it has that one already.

        Raises:
            InvalidOption: another query has added to the table, so it counted what this one will.
        """
        head = self._table.head()
        if not head.position:
            return head
        owner = head.position.get("query")
        if owner is None:
            raise InvalidOption(f"table is {self.uri}, which another job keeps")
        if owner != query:
            raise InvalidOption(
                f"table is {self.uri}, which is of query {owner}, and this is "
                f"{query}: its checkpoint is another one; go on with the checkpoint that belongs "
                "to the table, or begin a new table with a new checkpoint"
            )
        return None if head.position["batch"] >= batch else head

    def add_once(self, query: str, batch: int, rows: DataFrame) -> None:
        """Add the rows of a micro-batch, unless a run before has done so; raises as `add`."""
        base = self.before(query, batch)
        if base is not None:
            self.add(base, query, batch, rows)

    def add(
        self,
        base: Snapshot,
        query: str,
        batch: int,
        rows: DataFrame | None,
        *,
        more: Position | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> int:
        """Add the rows of a micro-batch to what `before` gave, and how many they are.

        `more` is kept in the position. Without rows, and with nothing to keep, there is no commit.

        Raises:
            RunSuperseded: the same query added it meanwhile, somewhere else.
        """
        run = self._table.new_run()
        added: tuple[DataFile, ...] = ()
        if rows is not None:
            added = write_files(rows, self.uri, run, self._contract, time=self._time)
        if added or more is not None:
            self._table.commit(
                base,
                kind=self._kind,
                run=run,
                position={"query": query, "batch": batch, **(more or {})},
                added=added,
                report=report,
                may_rebase=lambda _: True,
            )
        return sum(file.records for file in added)


def pass_over(rows: DataFrame) -> None:
    """Compute a micro-batch that a table has already, and do nothing with its rows.

    The query's own state is kept by computing them: Spark fails a micro-batch that nobody asked for
    all rows of, and the next one would go on without the state of this one.
    """
    rows.write.format("noop").mode("append").save()
