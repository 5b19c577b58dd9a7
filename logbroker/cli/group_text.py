"""Consumer groups and resets as text; headings are those of Kafka's own tool."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from logbroker.cli.formats import UNKNOWN, table_lines
from logbroker.cli.group_report import GroupPartition, GroupReport
from logbroker.cli.offset_reset import PlannedOffset
from logbroker.client.admin import GroupMember, TopicAndPartition
from logbroker.groups.stored import PaperConsumer

_PARTITION_HEADINGS: Final = (
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
_MEMBER_HEADINGS: Final = ("MEMBER", "INSTANCE-ID", "HOST", "CLIENT-ID", "PARTITIONS")
_CONSUMER_HEADINGS: Final = ("CONSUMER", "STREAMS")
_PLAN_HEADINGS: Final = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET")


def report_lines(report: GroupReport) -> Iterator[str]:
    """Yield a line about a group, then a table of each kind that is not empty."""
    yield _headline(report)
    if report.partitions:
        yield from table_lines(
            _PARTITION_HEADINGS, [_partition(each) for each in report.partitions]
        )
    if report.members:
        yield from table_lines(_MEMBER_HEADINGS, [_member(each) for each in report.members])
    if report.consumers:
        yield from table_lines(_CONSUMER_HEADINGS, [_consumer(each) for each in report.consumers])


def plan_lines(plan: Sequence[PlannedOffset]) -> Iterator[str]:
    """Yield the planned offset of each partition."""
    rows = [(each.topic, each.partition, each.committed_offset, each.new_offset) for each in plan]
    return table_lines(_PLAN_HEADINGS, rows)


def _headline(report: GroupReport) -> str:
    facts: dict[str, object] = {
        "group": report.group,
        "state": report.state,
        "assignor": report.assignor,
        "coordinator": report.coordinator,
        "members": len(report.members),
    }
    if report.consumers is not None:
        facts["consumers"] = len(report.consumers)
    return " ".join(
        f"{name}={UNKNOWN if value is None else value}" for name, value in facts.items()
    )


def _partition(partition: GroupPartition) -> Sequence[object]:
    return (
        partition.topic,
        partition.partition,
        partition.committed_offset,
        partition.log_end_offset,
        partition.lag,
        partition.consumer_id,
        partition.host,
        partition.client_id,
    )


def _member(member: GroupMember) -> Sequence[object]:
    return (
        member.member_id,
        member.instance_id,
        member.host,
        member.client_id,
        _format_partitions(member.partitions),
    )


def _format_partitions(topic_partitions: Sequence[TopicAndPartition]) -> str | None:
    """Format partitions as `topic:0,1 other:2`, as `--topic` expects them."""
    numbers: dict[str, list[str]] = {}
    for topic, partition in topic_partitions:
        numbers.setdefault(topic, []).append(str(partition))
    return " ".join(f"{topic}:{','.join(each)}" for topic, each in numbers.items()) or None


def _consumer(consumer: PaperConsumer) -> Sequence[object]:
    return consumer.consumer_id, _streams(consumer.streams)


def _streams(streams: Mapping[str, int]) -> str | None:
    return " ".join(f"{topic}:{count}" for topic, count in sorted(streams.items())) or None
