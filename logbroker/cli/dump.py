"""`logbroker dump`: print the batches of segment files, and verify their indexes."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import click

from logbroker.cli.formats import format_time
from logbroker.cli.index_agreement import IndexAgreement, OffsetIndexAgreement, TimeIndexAgreement
from logbroker.errors import CorruptBatch
from logbroker.records.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_V2,
    NO_PRODUCER_ID,
    BatchHeader,
    crc_matches,
    read_header,
)
from logbroker.records.compression import Codec
from logbroker.records.record import Record, decode_records

PROBLEMS_FOUND: Final = 1

_SEGMENT_NAME: Final = re.compile(r"[0-9]{20}\.log")


def _check_names(
    ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]
) -> tuple[Path, ...]:
    for path in paths:
        if not _SEGMENT_NAME.fullmatch(path.name):
            raise click.BadParameter(
                f"{path} is not a segment; expected a file <20 digits>.log", ctx, param
            )
    return paths


@click.command()
@click.argument(
    "segments",
    metavar="SEGMENT...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_check_names,
    nargs=-1,
    required=True,
)
@click.option("--records", "with_records", is_flag=True, help="Also print every record.")
def dump(segments: tuple[Path, ...], with_records: bool) -> None:
    """Print and verify the batches and indexes of log segments.

    Exit code 0: no problems; 1: problems found; 2: usage error.
    """
    problems = [SegmentDump(path, with_records=with_records).run() for path in segments]
    if any(problems):
        sys.exit(PROBLEMS_FOUND)


class SegmentDump:
    """Prints each batch of a segment and counts the problems.

    A batch with a wrong CRC is skipped by its length. Malformed bytes end the dump, because the
    start of the next batch is unknown.
    """

    def __init__(self, path: Path, *, with_records: bool) -> None:
        self._path = path
        self._with_records = with_records
        self._indexes: list[IndexAgreement] = []
        self._next_offset = int(path.stem)
        self._batches = 0
        self._records = 0
        self._problems = 0

    def run(self) -> int:
        """Print everything, and return the number of problems."""
        click.echo(f"segment {self._path}")
        self._indexes = _indexes_beside(self._path, int(self._path.stem))
        with self._path.open("rb") as file:
            try:
                for position, header, batch in _batches(file):
                    self._show_batch(position, header, batch)
            except CorruptBatch as error:
                self._say_wrong(str(error))
        for index in self._indexes:
            click.echo(index.verdict())
            self._problems += len(index.finish())
        click.echo(
            f"batches={self._batches} records={self._records} next_offset={self._next_offset} "
            f"problems={self._problems}"
        )
        return self._problems

    def _show_batch(self, position: int, header: BatchHeader, batch: bytes) -> None:
        is_sound = crc_matches(batch, header.crc)
        click.echo(describe_batch(position, header, crc_is_right=is_sound))
        if not is_sound:
            self._say_wrong(f"batch at position {position} does not match its CRC")
        if header.base_offset < self._next_offset or header.last_offset_delta < 0:
            self._say_wrong(
                f"batch at position {position} has offsets {header.base_offset}.."
                f"{header.last_offset}; expected is {self._next_offset} or more, rising"
            )
        for index in self._indexes:
            index.see(position, header)
        if self._with_records and is_sound:
            self._show_records(position, batch)
        self._batches += 1
        self._records += header.record_count
        self._next_offset = max(self._next_offset, header.next_offset)

    def _show_records(self, position: int, batch: bytes) -> None:
        try:
            for record in decode_records(batch):
                click.echo(describe_record(record))
        except CorruptBatch as error:
            self._say_wrong(f"records at position {position}: {error}")

    def _say_wrong(self, problem: str) -> None:
        self._problems += 1
        click.echo(f"wrong: {problem}")


def _indexes_beside(path: Path, base_offset: int) -> list[IndexAgreement]:
    """Open the existing indexes; a segment may have been copied without them."""
    checks = {".index": OffsetIndexAgreement, ".timeindex": TimeIndexAgreement}
    found = []
    for suffix, agreement in checks.items():
        index_path = path.with_suffix(suffix)
        if index_path.is_file():
            found.append(agreement(index_path, base_offset))
        else:
            click.echo(f"{index_path.name} is not beside the segment")
    return found


def _batches(file: BinaryIO) -> Iterator[tuple[int, BatchHeader, bytes]]:
    """Yield position, header and bytes of each batch; holds one batch in memory.

    Raises:
        CorruptBatch: the next bytes are not a whole batch of magic 2.
    """
    size = os.fstat(file.fileno()).st_size
    position = 0
    while position < size:
        start = file.read(min(HEADER_BYTES, size - position))
        header = _plausible_header(start, position, size)
        batch = start + file.read(header.size - len(start))
        yield position, header, batch
        position += header.size


def _plausible_header(start: bytes, position: int, size: int) -> BatchHeader:
    left = size - position
    try:
        header = read_header(start)
    except CorruptBatch:
        raise CorruptBatch(f"the segment ends inside a header, at position {position}") from None
    if header.magic != MAGIC_V2 or header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise CorruptBatch(
            f"no batch at position {position}: magic {header.magic}, "
            f"length {header.batch_length}; {left} bytes are not looked at"
        )
    if header.size > left:
        raise CorruptBatch(
            f"the segment ends inside a batch: position {position}, {left} of {header.size} bytes"
        )
    return header


def describe_batch(position: int, header: BatchHeader, *, crc_is_right: bool) -> str:
    """Return one line of `name=value` for a batch; offset ranges include their end."""
    first = "unknown" if header.has_delete_horizon else _time(header.base_timestamp)
    times = f"{first}..{_time(header.max_timestamp)}"
    fields = {
        "offsets": f"{header.base_offset}..{header.last_offset}",
        "position": position,
        "size": header.size,
        "count": header.record_count,
        "codec": _codec(header),
        "timestamps": times,
        "time": "LogAppendTime" if header.is_append_time else "CreateTime",
        "leader_epoch": header.leader_epoch,
        "producer": _producer(header),
        "control": "yes" if header.is_control else "no",
        "crc": f"{header.crc:08x}:{'right' if crc_is_right else 'wrong'}",
    }
    if header.has_delete_horizon:
        fields["delete_horizon"] = _time(header.base_timestamp)
    return " ".join(f"{name}={value}" for name, value in fields.items())


def describe_record(record: Record) -> str:
    """Return one line for a record: texts as JSON, other bytes in hexadecimal."""
    headers = ",".join(f"{json.dumps(key)}:{_octets(value)}" for key, value in record.headers)
    return (
        f"  offset={record.offset} timestamp={_time(record.timestamp_ms)} "
        f"key={_octets(record.key)} value={_octets(record.value)} headers={{{headers}}}"
    )


def _codec(header: BatchHeader) -> str:
    with suppress(ValueError):
        return Codec(header.compression).name.lower()
    return f"unknown({header.compression})"


def _producer(header: BatchHeader) -> str:
    if header.producer_id == NO_PRODUCER_ID:
        return "none"
    return f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"


def _time(timestamp_ms: int) -> str:
    return "none" if timestamp_ms == -1 else format_time(timestamp_ms)


def _octets(value: bytes | None) -> str:
    if value is None:
        return "null"
    try:
        return json.dumps(value.decode(), ensure_ascii=False)
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
