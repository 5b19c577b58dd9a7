"""`rewind publish`: publish the events of a file."""

from collections.abc import Iterator
from typing import BinaryIO, Final

import click

from app.cli.api_client import ApiClient, ApiError
from app.cli.options import api_options, exit_with_error, load_settings

BATCH_LINES: Final = 1_000
"""Events per request; a tenth of the API's limit."""

BATCH_BYTES: Final = 2**20
"""A batch ends with the event that reaches this size, which keeps it below the API's 8 MiB."""


@click.command()
@click.argument("file", type=click.File("rb"))
@api_options
def publish(file: BinaryIO, **overrides: str | None) -> None:
    """Publish the events of FILE.

    FILE has one JSON object per line; `-` is standard input. An event is {"id", "type", "time"?,
    "webhookId"?, "data": {...}}; without a time it happened now. Prints the number of events that
    the log acknowledged.
    """
    settings = load_settings(**overrides)
    accepted = 0
    with ApiClient.of(settings) as client:
        try:
            for batch in _batches(file):
                accepted += client.publish(batch)
        except ApiError as error:
            exit_with_error(f"after {accepted} events: {error}")
    click.echo(accepted)


def _batches(file: BinaryIO) -> Iterator[bytes]:
    lines: list[bytes] = []
    size = 0
    for line in file:
        if line.strip():
            lines.append(line.rstrip(b"\r\n"))
            size += len(line)
        if len(lines) == BATCH_LINES or size >= BATCH_BYTES:
            yield b"\n".join(lines)
            lines, size = [], 0
    if lines:
        yield b"\n".join(lines)
