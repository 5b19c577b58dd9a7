"""Bodies of the routes that show the log."""

from typing import Generic, Literal, Self

from pydantic import Field

from app.api.models.documents import Document, Item, Moment
from app.log.browser import Content, Header, Message, MessagePage
from app.log.inspection import Cluster, GroupDetail, GroupPage, TopicPage
from app.log.zookeeper_health import ZooKeeperServer


class GapDocument(Document):
    """Why a figure is null."""

    figure: str = Field(examples=["bytes"])
    reason: str


class LogListing(Document, Generic[Item]):
    """A page of a list, in the order of names."""

    items: list[Item]
    total: int = Field(description="The number of matches.")
    next_cursor: str | None = Field(description="The `cursor` of the next page; null at the end.")
    gaps: list[GapDocument] = Field(description="Figures that could not be read, and why.")

    @classmethod
    def of(cls, page: TopicPage | GroupPage, items: list[Item]) -> Self:
        """The listing of a page whose rows are `items`."""
        return cls(
            items=items,
            total=page.total,
            next_cursor=page.next_after,
            gaps=[GapDocument.model_validate(each) for each in page.gaps],
        )


class BrokerDocument(Document):
    """A live broker."""

    id: int
    host: str
    port: int
    is_controller: bool = Field(
        description="As reported by brokers; with KRaft, any of them may be."
    )


class ZooKeeperServerDocument(Document):
    """A server of `REWIND_ZOOKEEPER`."""

    address: str
    mode: str | None = Field(description="Null if it does not serve.", examples=["leader"])
    problem: str | None


class ClusterDocument(Document):
    """The brokers, and the ZooKeeper servers of `REWIND_ZOOKEEPER`."""

    cluster_id: str | None
    brokers: list[BrokerDocument]
    zookeeper: list[ZooKeeperServerDocument]

    @classmethod
    def of(cls, cluster: Cluster, zookeeper: tuple[ZooKeeperServer, ...]) -> Self:
        """The document of a cluster."""
        return cls(
            cluster_id=cluster.id,
            brokers=[BrokerDocument.model_validate(each) for each in cluster.brokers],
            zookeeper=[ZooKeeperServerDocument.model_validate(each) for each in zookeeper],
        )


class RetentionDocument(Document):
    """The retention of a topic; -1: no limit."""

    ms: int
    bytes: int
    policy: str = Field(examples=["delete"])


class TopicDocument(Document):
    """A topic."""

    name: str
    partitions: int
    offline: int = Field(description="Partitions without a leader.")
    under_replicated: int = Field(
        description="Partitions with fewer in-sync replicas than replicas."
    )
    messages: int | None = Field(description="The number of its offsets.")
    bytes: int | None = Field(description="On disk, without replicas.")
    retention: RetentionDocument | None


class PartitionDocument(Document):
    """A partition with the offsets from `startOffset` up to `endOffset`, which is excluded."""

    number: int
    leader: int | None
    replicas: list[int]
    isr: list[int] = Field(description="In-sync replicas.")
    start_offset: int | None
    end_offset: int | None
    first_at: Moment | None = Field(
        validation_alias="first_ms", description="The time of the first record."
    )
    last_at: Moment | None = Field(
        validation_alias="last_ms", description="The latest time of a record."
    )
    bytes: int | None


class TopicDetailDocument(Document):
    """A topic with its partitions, by number."""

    topic: TopicDocument
    partitions: list[PartitionDocument]
    next_start: int | None = Field(
        validation_alias="next_from", description="The `start` of the next page of partitions."
    )
    gaps: list[GapDocument]


class GroupDocument(Document):
    """A consumer group."""

    id: str
    state: str | None = Field(examples=["Stable"])
    protocol: str | None = Field(
        description="The assignment strategy; empty without members.",
        examples=["cooperative-sticky"],
    )
    coordinator: int | None = Field(description="The id of the coordinator's broker.")
    members: int | None
    partitions: int | None
    lag: int | None = Field(description="The sum over partitions with a committed offset.")
    is_mirror: bool = Field(description="Whether `logbroker mirror` uses the group.")
    mirrors_to: str | None = Field(description="The destination cluster, if known.")


class PlaceDocument(Document):
    """A partition of a topic."""

    topic: str
    partition: int


class MemberDocument(Document):
    """A member of a group, and its partitions."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[PlaceDocument]


class GroupPartitionDocument(Document):
    """The position of a group in a partition."""

    topic: str
    partition: int = Field(validation_alias="number")
    committed: int | None = Field(description="The committed offset: the next record to read.")
    end_offset: int | None = Field(validation_alias="end")
    lag: int | None
    owner: str | None = Field(description="The member that reads the partition.")


class GroupDetailDocument(Document):
    """A consumer group with its members and partitions."""

    group: GroupDocument
    members: list[MemberDocument]
    partitions: list[GroupPartitionDocument]
    gaps: list[GapDocument]

    @classmethod
    def of(cls, detail: GroupDetail) -> Self:
        """The document of a group."""
        return cls(
            group=GroupDocument.model_validate(detail.group),
            members=[
                MemberDocument(
                    id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    host=member.host,
                    partitions=[
                        PlaceDocument(topic=topic, partition=number)
                        for topic, number in member.partitions
                    ],
                )
                for member in detail.members
            ],
            partitions=[GroupPartitionDocument.model_validate(each) for each in detail.partitions],
            gaps=[GapDocument.model_validate(each) for each in detail.gaps],
        )


class ContentDocument(Document):
    """A key, value or header, formatted for people."""

    size: int = Field(description="The full size in bytes.")
    format: Literal["json", "avro", "text", "binary"]
    text: str | None = Field(description="Formatted JSON and Avro; null for binary data.")
    hex: str | None = Field(description="The first bytes of Avro and binary data.")
    is_cut: bool = Field(description="Whether it is truncated.")
    schema_id: int | None
    note: str | None = Field(description="Why the value was not decoded with its schema.")

    @classmethod
    def of(cls, content: Content) -> Self:
        """The document of a key, value or header."""
        return cls(
            size=content.size,
            format=content.format,
            text=content.text,
            hex=content.raw.hex() if content.format in ("avro", "binary") else None,
            is_cut=content.is_cut,
            schema_id=content.schema_id,
            note=content.note,
        )


class HeaderDocument(Document):
    """A header of a message."""

    name: str
    value: ContentDocument | None

    @classmethod
    def of(cls, header: Header) -> Self:
        """The document of a header."""
        return cls(name=header.name, value=_content(header.value))


class MessageDocument(Document):
    """A message. A null key or value is null; an empty one has the size 0."""

    partition: int
    offset: int
    timestamp_ms: int | None = Field(description="The timestamp of the record, unchanged.")
    time: Moment | None
    is_append_time: bool = Field(description="Whether the broker has set the time.")
    key: ContentDocument | None
    value: ContentDocument | None
    headers: list[HeaderDocument] | None = Field(
        description="The first hundred; null if a name cannot be decoded."
    )
    headers_count: int | None

    @classmethod
    def of(cls, message: Message) -> Self:
        """The document of a message."""
        headers = message.headers
        return cls(
            partition=message.partition,
            offset=message.offset,
            timestamp_ms=message.time_ms,
            time=message.time_ms,
            is_append_time=message.is_append_time,
            key=_content(message.key),
            value=_content(message.value),
            headers=None if headers is None else [HeaderDocument.of(each) for each in headers],
            headers_count=message.headers_count,
        )


class SpanDocument(Document):
    """The offsets of a partition from `startOffset` up to `endOffset`, which is excluded."""

    partition: int
    start_offset: int = Field(validation_alias="start")
    end_offset: int = Field(validation_alias="end")


class MessagesDocument(Document):
    """A page of messages, in the requested order."""

    items: list[MessageDocument]
    spans: list[SpanDocument] = Field(description="The offsets that this page covers.")
    next_cursor: str | None = Field(description="The `cursor` of the next page.")
    previous_cursor: str | None = Field(description="The `cursor` of the previous page.")
    gaps: list[GapDocument]

    @classmethod
    def of(cls, page: MessagePage) -> Self:
        """The document of a page."""
        return cls(
            items=[MessageDocument.of(message) for message in page.messages],
            spans=[SpanDocument.model_validate(each) for each in page.spans],
            next_cursor=page.next_cursor,
            previous_cursor=page.previous_cursor,
            gaps=[GapDocument.model_validate(each) for each in page.gaps],
        )


def _content(content: Content | None) -> ContentDocument | None:
    return None if content is None else ContentDocument.of(content)
