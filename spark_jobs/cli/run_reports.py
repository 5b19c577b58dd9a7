"""What the commands tell the replay service at their end, if they are to."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from spark_jobs.errors import InvalidOption, PipelineError
from spark_jobs.jobs.service import Facts, JobRun, ServiceAddress, how_it_ended, tell

_Command = TypeVar("_Command", bound=Callable[..., Any])

api_key_file_option = click.option(
    "--api-key-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file with an operator's key.",
)


def service_options(command: _Command) -> _Command:
    """The options `api` and `api_key_file`, as `service_address` reads them."""
    api_option = click.option(
        "--api", metavar="URL", help="The replay service, which is told how the run ended."
    )
    return api_option(api_key_file_option(command))


def service_address(api: str | None, api_key_file: Path | None) -> ServiceAddress | None:
    """The service that the options name; None for none.

    Raises:
        InvalidOption: the URL is none, the key cannot be one, or is for no service.
    """
    if api is None:
        if api_key_file is not None:
            raise InvalidOption(f"--api-key-file is {api_key_file}, and --api names no service")
        return None
    key = "" if api_key_file is None else api_key_file.read_text("utf-8", "replace").strip()
    return ServiceAddress(api, key)


@dataclass(slots=True)
class Run:
    """A run that goes on. Without `facts`, one that ends well is not worth telling of."""

    facts: Facts | None = None


@contextmanager
def told(job: str, table: str, service: ServiceAddress | None) -> Iterator[Run]:
    """Tells `service` at the end how the run within ended, whether by an error or well.

    A service that is away, or will not hear of it, is a line on standard error and nothing else.
    A run that is killed, or interrupted by hand, tells nothing.
    """
    run, started_ms = Run(), _now_ms()

    def end(outcome: str, facts: Facts) -> None:
        if service is not None:
            _tell(service, JobRun(job, table, outcome, facts, started_ms, _now_ms()))

    try:
        yield run
    except Exception as error:
        end(how_it_ended(error), Facts({"error": _in_words(error)}))
        raise
    if run.facts is not None:
        end("done", run.facts)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _in_words(error: Exception) -> str:
    # What was foreseen says what is wrong, and no secret; of others, standard error tells more.
    return str(error) if isinstance(error, PipelineError) else type(error).__name__


def _tell(service: ServiceAddress, run: JobRun) -> None:
    try:
        tell(service, run)
    except PipelineError as error:
        (first, *_) = str(error).splitlines()
        click.echo(f"rewind-jobs: the service was not told of this run: {first}", err=True)
