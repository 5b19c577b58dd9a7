"""The report of a load: on standard output, and in the manifest of its commit. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logbroker.client.raw import TopicPartition
from spark_jobs.jobs.load_task import RangeOutcome
from spark_jobs.offsets.ranges import OffsetRange


@dataclass(frozen=True)
class LoadReport:
    """The result of a successful load."""

    table: str
    """URI of the table."""

    run: str
    outcomes: Sequence[RangeOutcome]
    missing: Sequence[OffsetRange]
    """Offsets that the log had deleted before they were loaded, or that are in damaged batches."""

    replaced: Sequence[str]
    """Topics that were recreated, and loaded from their first offset."""

    seconds: float
    gone: Sequence[TopicPartition] = ()
    """Partitions that no longer exist, recorded so that later loads skip them."""

    version: int | None = None
    """The committed version; None before the commit, and if there was nothing new."""

    ends: Mapping[str, int] = field(default_factory=dict)
    """For each requested topic, the sum of its partitions' next offsets."""

    @property
    def records(self) -> int:
        """The number of loaded records."""
        return sum(each.records for each in self.outcomes)

    @property
    def missing_offsets(self) -> int:
        """The number of missing offsets, an upper bound for missing records."""
        return sum(each.size for each in self.missing)


def report_json(report: LoadReport) -> dict[str, Any]:
    """The report as JSON."""
    return {"version": report.version, "run": report.run, **manifest_report(report)}


def manifest_report(report: LoadReport) -> dict[str, Any]:
    """The report in the manifest, which has version and run elsewhere."""
    return {
        "records": report.records,
        "readBytes": sum(each.read_bytes for each in report.outcomes),
        "files": sum(len(each.files) for each in report.outcomes),
        "fileBytes": sum(file.bytes for each in report.outcomes for file in each.files),
        "missingOffsets": report.missing_offsets,
        "missing": [
            {"topic": each.topic, "partition": each.partition, "start": each.start, "end": each.end}
            for each in report.missing
        ],
        "replacedTopics": list(report.replaced),
        "gone": [each._asdict() for each in report.gone],
        "topics": _topics(report),
        "seconds": round(report.seconds, 3),
    }


def report_lines(report: LoadReport) -> Iterator[str]:
    """The report as text."""
    for topic in report.replaced:
        yield f"topic {topic} was recreated: loaded from its first offset"
    for tp in report.gone:
        yield f"partition {tp} no longer exists: later loads skip it"
    for each in report.missing:
        yield f"missing: {each}, {each.size} offsets deleted or unreadable"
    if report.version is None:
        yield f"no new records: {report.table} is up to date"
        return
    found = manifest_report(report)
    for topic, counts in found["topics"].items():
        line = f"{topic}: {counts['records']} records"
        if counts["withoutRecord"]:
            line += f"; {counts['withoutRecord']} offsets without a record (compaction, markers)"
        yield line
    yield (
        f"loaded {report.records} records ({found['readBytes']} bytes) into {found['files']} files "
        f"({found['fileBytes']} bytes) in {report.seconds:.1f} s; "
        f"{report.table} is at version {report.version}"
    )


def _topics(report: LoadReport) -> dict[str, dict[str, int]]:
    records: Counter[str] = Counter()
    without: Counter[str] = Counter()
    for each in report.outcomes:
        records[each.wanted.topic] += each.records
        without[each.wanted.topic] += each.without_record
    return {
        topic: {"records": records[topic], "withoutRecord": without[topic]}
        for topic in sorted(records)
    }
