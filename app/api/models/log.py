"""Bodies of the routes that show the log."""

from typing import Generic, Literal, Self

from pydantic import ConfigDict, Field

from app.api.models.documents import Document, Item, Moment
from app.log.browser import Content, Header, Message, MessagePage
from app.log.inspection import Cluster, GroupDetail, GroupPage, TopicDetail, TopicPage
from app.log.zookeeper_health import ZooKeeperServer


class Figures(Document):
    """A body that shows values of the log as they are."""

    model_config = ConfigDict(from_attributes=True)


class GapDocument(Figures):
    """Why a figure is null somewhere."""

    figure: str = Field(examples=["bytes"])
    reason: str


class LogListing(Document, Generic[Item]):
    """A page of a list, in the order of names."""

    items: list[Item]
    total: int = Field(description="Of those that match.")
    next_cursor: str | None = Field(description="Ask for the next page with it; null at the end.")
    gaps: list[GapDocument] = Field(description="What could not be told, and why.")

    @classmethod
    def of(cls, page: TopicPage | GroupPage, items: list[Item]) -> Self:
        """The listing of a page whose rows are `items`."""
        return cls(
            items=items,
            total=page.total,
            next_cursor=page.next_after,
            gaps=[GapDocument.model_validate(each) for each in page.gaps],
        )


class BrokerDocument(Figures):
    """A broker that lives."""

    id: int
    host: str
    port: int
    is_controller: bool = Field(
        description="As brokers say it: with KRaft, any of them may be named."
    )


class ZooKeeperServerDocument(Figures):
    """A server of the ensemble that `REWIND_ZOOKEEPER` names."""

    address: str
    mode: str | None = Field(description="Null where it does not serve.", examples=["leader"])
    problem: str | None


class ClusterDocument(Document):
    """The brokers, and the ZooKeeper that they meet in where the service was told of one."""

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


class RetentionDocument(Figures):
    """How long a topic keeps records; -1 is without a bound."""

    ms: int
    bytes: int
    policy: str = Field(examples=["delete"])


class TopicDocument(Figures):
    """A topic."""

    name: str
    partitions: int
    offline: int = Field(description="Partitions without a leader.")
    under_replicated: int = Field(description="Partitions that lack replicas in sync.")
    messages: int | None = Field(description="The span of its offsets.")
    bytes: int | None = Field(description="On disk, without replicas.")
    retention: RetentionDocument | None


class PartitionDocument(Figures):
    """A partition, which holds the offsets from `startOffset` to before `endOffset`."""

    number: int
    leader: int | None
    replicas: list[int]
    isr: list[int] = Field(description="Replicas in sync.")
    start_offset: int | None
    end_offset: int | None
    first_at: Moment | None = Field(
        validation_alias="first_ms", description="The time of the first record."
    )
    last_at: Moment | None = Field(
        validation_alias="last_ms", description="The latest time of any record."
    )
    bytes: int | None


class TopicDetailDocument(Document):
    """A topic with its partitions, by number."""

    topic: TopicDocument
    partitions: list[PartitionDocument]
    next_start: int | None = Field(description="Ask for further partitions with it as `start`.")
    gaps: list[GapDocument]

    @classmethod
    def of(cls, detail: TopicDetail) -> Self:
        """The document of a topic."""
        return cls(
            topic=TopicDocument.model_validate(detail.topic),
            partitions=[PartitionDocument.model_validate(each) for each in detail.partitions],
            next_start=detail.next_from,
            gaps=[GapDocument.model_validate(each) for each in detail.gaps],
        )


class GroupDocument(Figures):
    """A consumer group."""

    id: str
    state: str | None = Field(examples=["Stable"])
    protocol: str | None = Field(
        description="How it shares partitions; empty without members.",
        examples=["cooperative-sticky"],
    )
    coordinator: int | None = Field(description="The id of a broker.")
    members: int | None
    partitions: int | None
    lag: int | None = Field(description="Over all partitions in which it has a position.")
    is_mirror: bool = Field(description="Whether `logbroker mirror` reads by it.")
    mirrors_to: str | None = Field(description="The cluster that it copies to, if known.")


class PlaceDocument(Document):
    """A partition of a topic."""

    topic: str
    partition: int


class MemberDocument(Document):
    """A member of a group, and what it has."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[PlaceDocument]


class GroupPartitionDocument(Document):
    """How far a group is in a partition."""

    topic: str
    partition: int
    committed: int | None = Field(description="The offset of the record to read next.")
    end_offset: int | None
    lag: int | None
    owner: str | None = Field(description="The id of the member that has the partition.")


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
                    id=member.id,
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
            partitions=[
                GroupPartitionDocument(
                    topic=each.topic,
                    partition=each.number,
                    committed=each.committed,
                    end_offset=each.end,
                    lag=each.lag,
                    owner=each.owner,
                )
                for each in detail.partitions
            ],
            gaps=[GapDocument.model_validate(each) for each in detail.gaps],
        )


class ContentDocument(Document):
    """Bytes of a message, as people read them."""

    size: int = Field(description="In bytes, of all of it.")
    format: Literal["json", "avro", "text", "binary"]
    text: str | None = Field(description="JSON and Avro are laid out; null where it is binary.")
    hex: str | None = Field(description="Of Avro and of what is binary: the first bytes.")
    is_cut: bool = Field(description="Whether some of it is left out.")
    schema_id: int | None
    note: str | None = Field(description="Why a value was not read by the schema that it names.")

    @classmethod
    def of(cls, content: Content) -> Self:
        """The document of some bytes."""
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
    """A message. A null key or value is null, an empty one has the size 0."""

    partition: int
    offset: int
    timestamp_ms: int | None = Field(description="As the log has it, whatever it is.")
    time: Moment | None
    is_append_time: bool = Field(description="Whether the time is the broker's.")
    key: ContentDocument | None
    value: ContentDocument | None
    headers: list[HeaderDocument] | None = Field(
        description="The first hundred; null where one has a name that cannot be read."
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
    """The offsets from `startOffset` to before `endOffset` of a partition."""

    partition: int
    start_offset: int
    end_offset: int


class MessagesDocument(Document):
    """A page of messages, in the order that was asked for."""

    items: list[MessageDocument]
    spans: list[SpanDocument] = Field(description="What could be looked through.")
    next_cursor: str | None = Field(description="Of the page behind, in this order.")
    previous_cursor: str | None = Field(description="Of the page before.")
    gaps: list[GapDocument]

    @classmethod
    def of(cls, page: MessagePage) -> Self:
        """The document of a page."""
        return cls(
            items=[MessageDocument.of(message) for message in page.messages],
            spans=[
                SpanDocument(partition=each.partition, start_offset=each.start, end_offset=each.end)
                for each in page.spans
            ],
            next_cursor=page.next_cursor,
            previous_cursor=page.previous_cursor,
            gaps=[GapDocument.model_validate(each) for each in page.gaps],
        )


def _content(content: Content | None) -> ContentDocument | None:
    return None if content is None else ContentDocument.of(content)
