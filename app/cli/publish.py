"""`rewind publish`: put events of a file into the log."""

from collections.abc import Iterator
from typing import BinaryIO, Final

import click

from app.cli.api_client import ApiClient, ApiRefused
from app.cli.options import api_options, load_settings, refuse

BATCH_LINES: Final = 1_000
"""Events in one request; the API takes ten times as many."""

BATCH_BYTES: Final = 2**20
"""A request is sent once it has so many, so that with its last event it is still below 8 MiB."""


@click.command()
@click.argument("file", type=click.File("rb"))
@api_options
def publish(file: BinaryIO, **overrides: str | None) -> None:
    """Publish the events of FILE, one JSON object in each line; `-` is standard input.

    An event is {"id", "type", "time", "webhookId"?, "data": {...}}. The number of events that
    the log has acknowledged goes to standard output.
    """
    settings = load_settings(**overrides)
    accepted = 0
    with ApiClient.of(settings) as client:
        try:
            for batch in _batches(file):
                accepted += client.publish(batch)
        except ApiRefused as refusal:
            refuse(f"after {accepted} events: {refusal}")
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
