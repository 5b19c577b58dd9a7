"""What the commands of streaming queries share."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from spark_jobs.cli.options import echo_json
from spark_jobs.errors import InvalidOption

if TYPE_CHECKING:
    from spark_jobs.jobs.streaming import StreamRun


_UNITS_S: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,6}) *(second|minute|hour|day)s?")


class Duration(click.ParamType[int]):
    """Whole seconds, at least `least_s`."""

    name = "duration"

    def __init__(self, least_s: int) -> None:
        self._least_s = least_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The seconds of a text."""
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value.strip())
        if found is None:
            self.fail(f"{value!r} is no duration, such as '10 minutes' or '30 seconds'", param, ctx)
        duration_s = int(found[1]) * _UNITS_S[found[2]]
        if duration_s < self._least_s:
            self.fail(f"{value!r} is less than {self._least_s} s", param, ctx)
        return duration_s

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """What the help shows."""
        del param, ctx
        return "DURATION"


_TRIGGER_S: Final = 60
_PARTITIONS: Final = 8

Command = Callable[..., Any]

checkpoint_option = click.option(
    "--checkpoint",
    metavar="URI",
    required=True,
    help="A folder for what Spark keeps of this query: offsets and state. It belongs to the table: "
    "keep both, or neither.",
)
available_now_option = click.option(
    "--available-now",
    is_flag=True,
    help="Take what is in the log now, and end; else go on until SIGINT or SIGTERM.",
)
trigger_option = click.option(
    "--trigger",
    "trigger_s",
    type=Duration(1),
    help="Time from one micro-batch to the next.  [default: 1 minute]",
)
starting_offsets_option = click.option(
    "--starting-offsets",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a query without a checkpoint begins.",
)
offsets_max_option = click.option(
    "--max-offsets-per-trigger",
    "offsets_max",
    type=click.IntRange(1),
    help="So many records a micro-batch takes at most.  [default: all there are]",
)
fail_on_data_loss_option = click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Stop when the log has deleted what is due, or go on with what there is.",
)
state_partitions_option = click.option(
    "--state-partitions",
    type=click.IntRange(1),
    default=_PARTITIONS,
    show_default=True,
    help="Tasks that share the query's state; for good, from its first micro-batch on.",
)


def stream_options(command: Command) -> Command:
    """All of them."""
    for option in (
        state_partitions_option,
        fail_on_data_loss_option,
        offsets_max_option,
        starting_offsets_option,
        trigger_option,
        available_now_option,
        checkpoint_option,
    ):
        command = option(command)
    return command


def stream_run(checkpoint: str, trigger_s: int | None, *, available_now: bool) -> "StreamRun":
    """How the query runs, by the options.

    Raises:
        InvalidOption: they contradict each other.
    """
    from spark_jobs.jobs.streaming import StreamRun

    if not available_now:
        return StreamRun(checkpoint, _TRIGGER_S if trigger_s is None else trigger_s)
    if trigger_s is not None:
        raise InvalidOption("--trigger means nothing with --available-now, which ends by itself")
    return StreamRun(checkpoint, None)


def session_settings(state_partitions: int) -> dict[str, str]:
    """Spark's settings of a streaming query."""
    # Each is a task of every micro-batch, and Spark's own default is 200.
    return {"spark.sql.shuffle.partitions": str(state_partitions)}


class BatchTotals:
    """What the micro-batches of a run brought: each is told as it comes, their sum at the end."""

    def __init__(self, fields: Sequence[str]) -> None:
        """`fields` are the counts of a micro-batch."""
        self._fields = fields
        self._totals = Counter(dict.fromkeys(("batches", *fields), 0))

    def tell(self, done: Any) -> None:
        """Tell of a micro-batch: a line on standard error."""
        counts = {name: getattr(done, name) for name in self._fields}
        self._totals.update(counts, batches=1)
        click.echo(f"batch {done.batch}: {_words(counts)}", err=True)

    def show(self, *, as_json: bool) -> None:
        """Tell of all of them, on standard output."""
        if as_json:
            echo_json(self._totals)
        else:
            click.echo(_words(self._totals))


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
