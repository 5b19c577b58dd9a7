"""Reports the result of a command to the replay service, if `--api` is given."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from logbroker.option_group import option_group
from spark_jobs.errors import InvalidOption, PipelineError
from spark_jobs.jobs.service import JobRun, RunSummary, ServiceAddress, outcome_of, report_run

api_key_file_option = click.option(
    "--api-key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with an operator key.",
)


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Where the replay service is, and the file of the key for it."""

    api: str | None
    api_key_file: Path | None

    def address(self) -> ServiceAddress | None:
        """The address of the service; None without `--api`.

        Raises:
            InvalidOption: the URL or the key is malformed, or there is a key and no URL.
        """
        if self.api is None:
            if self.api_key_file is not None:
                raise InvalidOption(f"--api-key-file is {self.api_key_file}, but --api is missing")
            return None
        file = self.api_key_file
        key = "" if file is None else file.read_text("utf-8", "replace").strip()
        return ServiceAddress(self.api, key)


service_options = option_group(
    "service",
    ServiceOptions,
    click.option(
        "--api", metavar="URL", help="The replay service, to which the run's result is reported."
    ),
    api_key_file_option,
)


@dataclass(slots=True)
class ReportedRun:
    """A run in progress; a successful run without a `summary` is not reported."""

    summary: RunSummary | None = None


@contextmanager
def reporting_run(job: str, table: str, service: ServiceAddress | None) -> Iterator[ReportedRun]:
    """Report the result of the block to `service`: its summary, or the error that ended it.

    A failed report is a line on standard error and nothing else. A run that is killed or
    interrupted is not reported.
    """
    run, started_ms = ReportedRun(), _now_ms()

    def report(outcome: str, summary: RunSummary) -> None:
        if service is not None:
            _report(service, JobRun(job, table, outcome, summary, started_ms, _now_ms()))

    try:
        yield run
    except Exception as error:
        report(outcome_of(error), RunSummary({"error": _error_text(error)}))
        raise
    if run.summary is not None:
        report("done", run.summary)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _error_text(error: Exception) -> str:
    # The texts of our own errors hold no secrets; those of others might.
    return str(error) if isinstance(error, PipelineError) else type(error).__name__


def _report(service: ServiceAddress, run: JobRun) -> None:
    try:
        report_run(service, run)
    except PipelineError as error:
        (first, *_) = str(error).splitlines()
        click.echo(f"rewind-jobs: this run was not reported to the service: {first}", err=True)
