"""Options and progress output of the commands that run streaming queries."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from logbroker.option_group import option_group
from spark_jobs.cli.options import echo_json
from spark_jobs.errors import InvalidOption

if TYPE_CHECKING:
    from spark_jobs.jobs.streaming import StreamRun, StreamSource

_UNITS_S: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,6}) *(second|minute|hour|day)s?")
_TRIGGER_S: Final = 60
_STATE_PARTITIONS: Final = 8


class Duration(click.ParamType[int]):
    """A duration in Spark's notation, such as `10 minutes`: whole seconds, at least `least_s`."""

    name = "duration"

    def __init__(self, least_s: int) -> None:
        self._least_s = least_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The duration in seconds."""
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            self.fail(
                f"{value!r} is not a duration such as '10 minutes' or '30 seconds'", param, ctx
            )
        duration_s = int(found[1]) * _UNITS_S[found[2]]
        if duration_s < self._least_s:
            self.fail(f"{value!r} is less than {self._least_s} s", param, ctx)
        return duration_s

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """The placeholder in help texts."""
        del param, ctx
        return "DURATION"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """How a streaming query reads, runs and stores its state."""

    checkpoint: str
    available_now: bool
    trigger_s: int | None
    starting_offsets: str
    offsets_max: int | None
    fail_on_data_loss: bool
    state_partitions: int

    def source(self, properties: Mapping[str, str]) -> "StreamSource":
        """What the query reads with these properties of a Kafka client."""
        from spark_jobs.jobs.streaming import StreamSource

        return StreamSource(
            properties, self.starting_offsets, self.fail_on_data_loss, self.offsets_max
        )

    def run(self) -> "StreamRun":
        """How the query is run.

        Raises:
            InvalidOption: `--trigger` and `--available-now` are both given.
        """
        from spark_jobs.jobs.streaming import StreamRun

        if not self.available_now:
            return StreamRun(self.checkpoint, self.trigger_s or _TRIGGER_S)
        if self.trigger_s is not None:
            raise InvalidOption("--trigger has no effect with --available-now; omit one of them")
        return StreamRun(self.checkpoint, None)

    def session_settings(self) -> dict[str, str]:
        """Spark's settings for the query."""
        # Every micro-batch has a task per state partition, and Spark's default is 200.
        return {"spark.sql.shuffle.partitions": str(self.state_partitions)}


query_options = option_group(
    "query",
    QueryOptions,
    click.option(
        "--checkpoint",
        metavar="URI",
        required=True,
        help="A folder for the query's offsets and state. It belongs to the table: keep or delete "
        "both together.",
    ),
    click.option(
        "--available-now",
        is_flag=True,
        help="Process what the log has now and exit, instead of running until SIGINT or SIGTERM.",
    ),
    click.option(
        "--trigger",
        "trigger_s",
        type=Duration(1),
        help="Interval between micro-batches.  [default: 1 minute]",
    ),
    click.option(
        "--starting-offsets",
        type=click.Choice(["earliest", "latest"]),
        default="earliest",
        show_default=True,
        help="Where a query without a checkpoint starts.",
    ),
    click.option(
        "--max-offsets-per-trigger",
        "offsets_max",
        type=click.IntRange(1),
        help="Maximum records per micro-batch.  [default: unlimited]",
    ),
    click.option(
        "--fail-on-data-loss/--no-fail-on-data-loss",
        default=True,
        show_default=True,
        help="Stop if the log has deleted records that were not read yet, or continue without "
        "them.",
    ),
    click.option(
        "--state-partitions",
        type=click.IntRange(1),
        default=_STATE_PARTITIONS,
        show_default=True,
        help="Partitions of the query's state. Fixed by the first micro-batch.",
    ),
)


class BatchTotals:
    """Prints the counts of each micro-batch, and their totals at the end."""

    def __init__(self, fields: Sequence[str]) -> None:
        """`fields` names the counts of a micro-batch."""
        self._fields = fields
        self._totals = Counter(dict.fromkeys(("batches", *fields), 0))

    def print_batch(self, done: Any) -> None:
        """Print a micro-batch to standard error, and add it to the totals."""
        counts = {name: getattr(done, name) for name in self._fields}
        self._totals.update(counts, batches=1)
        click.echo(f"batch {done.batch}: {_format_counts(counts)}", err=True)

    def print_totals(self, *, as_json: bool) -> None:
        """Print the totals to standard output."""
        if as_json:
            echo_json(self._totals)
        else:
            click.echo(_format_counts(self._totals))


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
