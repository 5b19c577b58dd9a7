"""`logbroker audit`: compare what producers published with what consumers received."""

import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from logbroker.audit.domain.comparison import Comparison, ReportDeadline, Row, Scope, Status
from logbroker.audit.domain.report_reader import ReportReader
from logbroker.audit.domain.result import (
    COUNTS,
    Total,
    comparison_warnings,
    is_shown,
    result_json,
    totals,
)
from logbroker.cli.admin_command import (
    bootstrap_servers_option,
    echo_json,
    json_option,
    one_line_errors,
)
from logbroker.cli.client_config import CLIENT_CONFIG, read_client_config
from logbroker.cli.formats import format_time, table_lines
from logbroker.cli.groups import Rfc3339
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.option_group import option_group

if TYPE_CHECKING:
    from logbroker.audit.audit_log import AuditLog

MISSING: Final = 1
"""The exit code if something is missing."""

NOT_COMPARED: Final = 2
"""The exit code if the comparison was not possible; also click's for a usage error."""

INTERRUPTED: Final = 130
"""A shell's exit code of a program that Ctrl-C ended."""

DEFAULT_SPAN_MS: Final = 86_400_000

LATENESS_S_MAX: Final = 7 * 86_400

_COUNT_HEADINGS: Final = tuple(name.upper() for name in COUNTS)
_ROW_HEADINGS: Final = ("TOPIC", "WINDOW", "PRODUCER", "TIER", *_COUNT_HEADINGS, "STATUS")
_TOTAL_HEADINGS: Final = ("TOPIC", "TIER", "ROWS", "PENDING", *_COUNT_HEADINGS, "STATUS")


class _Result(NamedTuple):
    """The result of a comparison."""

    scope: Scope
    deadline: ReportDeadline
    rows: list[Row]
    events: dict[str, int]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class _RangeOptions:
    """Which windows to compare."""

    start_ms: int | None
    end_ms: int | None
    lateness_s: float

    def resolve(self, now_ms: int) -> tuple[int, int]:
        """Return start and end of the range; the defaults depend on the present time.

        Raises:
            UsageError: the start is not before the end.
        """
        end_ms = now_ms if self.end_ms is None else self.end_ms
        start_ms = max(0, end_ms - DEFAULT_SPAN_MS) if self.start_ms is None else self.start_ms
        if start_ms >= end_ms:
            raise click.UsageError(
                f"--from {format_time(start_ms)} is not before --to {format_time(end_ms)}"
            )
        return start_ms, end_ms


_range_options = option_group(
    "time_range",
    _RangeOptions,
    click.option(
        "--from",
        "start_ms",
        type=Rfc3339(),
        help="Compare windows that begin at this time or later. Default: a day before --to.",
    ),
    click.option(
        "--to",
        "end_ms",
        type=Rfc3339(),
        help="Compare windows that begin before this time. Default: now.",
    ),
    click.option(
        "--lateness-s",
        type=click.FloatRange(0, LATENESS_S_MAX),
        default=60.0,
        show_default=True,
        help="How long producers and consumers may take to report their counts.",
    ),
)


@dataclass(frozen=True, slots=True)
class _LogOptions:
    """Where the audit reports are."""

    audit_topic: str
    client_config: Path | None
    bootstrap_servers: str


_log_options = option_group(
    "reports",
    _LogOptions,
    click.option(
        "--audit-topic",
        metavar="TOPIC",
        default=AUDIT_TOPIC,
        show_default=True,
        help="The topic of the audit reports.",
    ),
    click.option(
        "--client-config",
        type=CLIENT_CONFIG,
        help="A file of NAME=VALUE lines for the Kafka client, with librdkafka's names.",
    ),
    bootstrap_servers_option,
)


@click.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Compare this topic; repeatable. Default: all topics.",
)
@_range_options
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="TIER",
    help="Expect this tier to receive every compared topic, even if it reports nothing; "
    "repeatable.",
)
@click.option(
    "--all", "is_all", is_flag=True, help="Show every row, also complete and pending ones."
)
@json_option
@_log_options
def audit(
    topics: tuple[str, ...],
    time_range: _RangeOptions,
    tiers: tuple[str, ...],
    is_all: bool,
    as_json: bool,
    reports: _LogOptions,
) -> None:
    """Compare published with received messages, by the topic `audit` of a cluster.

    Each row is a window of one producer's messages to a topic, and what one tier of consumers
    received of it. The output has the rows with missing or uncovered messages, and a total for
    each topic and tier; JSON has every row. Exit code 0: nothing is missing; 1: something is
    missing; 2: the comparison was not possible.
    """
    lateness_ms = round(time_range.lateness_s * 1_000)
    deadline = ReportDeadline(round(time.time() * 1_000), lateness_ms)
    start_ms, end_ms = time_range.resolve(deadline.now_ms)
    servers = reports.bootstrap_servers
    with _exit_2_if_not_compared(servers):
        from logbroker.audit.audit_log import RULES, AuditLog

        properties = read_client_config("--client-config", reports.client_config, RULES)
        since_ms = max(0, start_ms - deadline.lateness_ms)
        with AuditLog(servers, reports.audit_topic, since_ms, properties) as log:
            scope = Scope(start_ms, end_ms, frozenset(topics))
            result = _compare(log, scope, deadline, tiers)
        _echo(result, is_all=is_all, as_json=as_json)
        if any(row.status is Status.MISSING for row in result.rows):
            sys.exit(MISSING)


@contextmanager
def _exit_2_if_not_compared(bootstrap_servers: str) -> Iterator[None]:
    """Exit with code 2 where Python and click would use 1, which means "missing" here."""
    try:
        with one_line_errors(bootstrap_servers, NOT_COMPARED):
            yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:
        traceback.print_exc()
        sys.exit(NOT_COMPARED)


def _compare(
    log: "AuditLog", scope: Scope, deadline: ReportDeadline, tiers: Sequence[str]
) -> _Result:
    comparison = Comparison(scope)
    reader = ReportReader(comparison, deadline)
    with click.progressbar(
        log.entries(),
        length=log.records,
        label="reading",
        file=sys.stderr,
        hidden=not sys.stderr.isatty(),
    ) as entries:
        for entry in entries:
            reader.add(entry)
    rows = list(comparison.rows(deadline, tiers))
    warnings = [
        *reader.warnings(),
        *comparison_warnings(totals(rows), comparison.tiers, tiers, scope),
    ]
    if log.begins_after_deletion:
        warnings.append("older records of the topic are deleted, and not compared")
    warnings += [
        f"a batch of {each.topic}-{each.partition} cannot be read ({each.reason}): "
        f"reports at offsets {each.start} to {each.end - 1} are not compared"
        for each in log.unreadable
    ]
    return _Result(scope, deadline, rows, dict(reader.counts), warnings)


def _echo(result: _Result, *, is_all: bool, as_json: bool) -> None:
    for warning in result.warnings:
        click.echo(f"logbroker: {warning}", err=True)
    if as_json:
        echo_json(result_json(*result))
        return
    shown = [row for row in result.rows if is_all or is_shown(row)]
    if shown:
        _echo_table(_ROW_HEADINGS, [_row_cells(row) for row in shown])
        click.echo()
    _echo_table(_TOTAL_HEADINGS, [_total_cells(total) for total in totals(result.rows)])


def _echo_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    for line in table_lines(headings, rows):
        click.echo(line)


def _row_cells(row: Row) -> list[object]:
    counts = [getattr(row, name) for name in COUNTS]
    labels = [row.topic, format_time(row.window_ms), _printable(row.producer), _tier(row.tier)]
    return [*labels, *counts, row.status]


def _total_cells(total: Total) -> list[object]:
    counts = [getattr(total, name) for name in COUNTS]
    rows = [total.rows.total(), total.rows[Status.PENDING]]
    return [total.topic, _tier(total.tier), *rows, *counts, total.status]


def _tier(tier: str | None) -> str | None:
    return None if tier is None else _printable(tier)


def _printable(name: str) -> str:
    """Return a name without characters that would move a terminal's cursor."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in name)
