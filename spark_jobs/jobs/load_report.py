"""What a run of the load tells: on standard output, and in the manifest of its commit. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logbroker.client.raw import TopicPartition
from spark_jobs.jobs.load_task import RangeOutcome
from spark_jobs.offsets.ranges import OffsetRange


@dataclass(frozen=True)
class LoadReport:
    """A run that ended well."""

    table: str
    """Its URI."""

    run: str
    outcomes: Sequence[RangeOutcome]
    missing: Sequence[OffsetRange]
    """Offsets that the log had deleted before they were loaded, or had in damaged batches."""

    replaced: Sequence[str]
    """Topics that were made anew, and begun again."""

    seconds: float
    gone: Sequence[TopicPartition] = ()
    """Partitions that were loaded before and are not there any more; later loads know that."""

    version: int | None = None
    """That the run has committed; None while it has not, and where there was nothing new."""

    ends: Mapping[str, int] = field(default_factory=dict)
    """Of each topic that was asked for, the offsets that the table has come to, added up over its
    partitions."""

    @property
    def records(self) -> int:
        """How many were loaded."""
        return sum(each.records for each in self.outcomes)

    @property
    def missing_offsets(self) -> int:
        """How many offsets are missing: no fewer than records are."""
        return sum(each.size for each in self.missing)


def document(report: LoadReport) -> dict[str, Any]:
    """The report for scripts."""
    return {"version": report.version, "run": report.run, **facts(report)}


def facts(report: LoadReport) -> dict[str, Any]:
    """What the manifest keeps of it, which has a version and a run of its own."""
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


def lines(report: LoadReport) -> Iterator[str]:
    """The report for people."""
    for topic in report.replaced:
        yield f"topic {topic} was made anew: loaded from its first offset"
    for place in report.gone:
        yield f"{place} is not there any more: later loads pass over it"
    for each in report.missing:
        yield f"missing: {each}, {each.size} offsets that the log has deleted, or not readable"
    if report.version is None:
        yield f"nothing new: {report.table} has all that the log had when this run began"
        return
    told = facts(report)
    for topic, counts in told["topics"].items():
        said = f"{topic}: {counts['records']} records"
        if counts["withoutRecord"]:
            said += f"; {counts['withoutRecord']} offsets without a record (compacted, or markers)"
        yield said
    yield (
        f"loaded {report.records} records ({told['readBytes']} bytes) into {told['files']} files "
        f"({told['fileBytes']} bytes) in {report.seconds:.1f} s; "
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
