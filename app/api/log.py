"""Routes for operators that read the log: brokers, topics, messages and groups."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from app.api.admission import OperatorOnly
from app.api.models.log import (
    ClusterDocument,
    GroupDetailDocument,
    GroupDocument,
    LogListing,
    MessagesDocument,
    TopicDetailDocument,
    TopicDocument,
)
from app.api.models.log_samples import LogSamplesDocument
from app.api.openapi import ANY_ERROR, errors
from app.domain.hours import HOUR_MS
from app.domain.log_samples import SampleSpan, Series, SeriesKind
from app.http.dependencies import ServicesDependency
from app.http.problems import BUSY, FORBIDDEN, INVALID_REQUEST, NOT_FOUND, UNAVAILABLE
from app.http.request_bodies import Time
from app.log.browser import MESSAGES_MAX, BrowseQuery, MessageOrder
from app.log.inspection.inspector import GROUPS_MAX, TOPICS_MAX
from app.services.services import now_ms

PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1

router = APIRouter(prefix="/log", tags=["log"], dependencies=[OperatorOnly], responses=ANY_ERROR)

# Limited by the URL's length only: group ids have no limit.
After = Annotated[str, Query(alias="cursor", description="The `nextCursor` of the previous page.")]
Containing = Annotated[
    str, Query(alias="name", max_length=249, description="Only names that contain this text.")
]


@router.get(
    "/brokers",
    operation_id="listBrokers",
    responses=errors(FORBIDDEN, BUSY, UNAVAILABLE),
)
async def list_brokers(services: ServicesDependency) -> ClusterDocument:
    """List the live brokers, and the state of the servers in `REWIND_ZOOKEEPER`."""
    cluster = await run_in_threadpool(services.inspector.cluster)
    return ClusterDocument.of(cluster, await services.zookeeper.read())


@router.get(
    "/topics",
    operation_id="listTopics",
    responses=errors(INVALID_REQUEST, FORBIDDEN, BUSY, UNAVAILABLE),
)
def list_topics(
    services: ServicesDependency,
    name: Containing = "",
    cursor: After = "",
    limit: Annotated[int, Query(ge=1, le=TOPICS_MAX)] = 100,
) -> LogListing[TopicDocument]:
    """List the topics that the service's Kafka user may see, by name.

    Figures that the brokers do not report to this user are null, and `gaps` says why.
    """
    page = services.inspector.topics(after=cursor, containing=name, limit=limit)
    items = [TopicDocument.model_validate(each) for each in page.topics]
    return LogListing[TopicDocument].of(page, items)


@router.get(
    "/topics/{topic}",
    operation_id="getTopic",
    responses=errors(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BUSY, UNAVAILABLE),
)
def get_topic(
    topic: str,
    services: ServicesDependency,
    start: Annotated[
        int, Query(ge=0, le=PARTITION_MAX, description="The first partition of the page.")
    ] = 0,
) -> TopicDetailDocument:
    """Get a topic, with up to a thousand partitions."""
    return TopicDetailDocument.model_validate(services.inspector.topic(topic, start=start))


@router.get(
    "/topics/{topic}/messages",
    operation_id="listMessages",
    responses=errors(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BUSY, UNAVAILABLE),
)
def list_messages(
    topic: str,
    services: ServicesDependency,
    partition: Annotated[
        int | None, Query(ge=0, le=PARTITION_MAX, description="Only of this partition.")
    ] = None,
    order: Annotated[
        MessageOrder, Query(description="Which messages come first.")
    ] = MessageOrder.NEWEST,
    offset: Annotated[
        int | None,
        Query(
            ge=0, le=OFFSET_MAX, description="The first offset of the page; only with `partition`."
        ),
    ] = None,
    time: Annotated[
        Time | None,
        Query(
            description="With `oldest`, messages from this time on; with `newest`, messages before."
        ),
    ] = None,
    cursor: Annotated[
        str | None, Query(description="`nextCursor` or `previousCursor` of a page.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MESSAGES_MAX)] = MESSAGES_MAX,
) -> MessagesDocument:
    """List messages of a topic; those of several partitions are merged by time.

    By default a page has the newest messages; with `order` the oldest. It is shorter than its limit
    at the end of the log, and if it would take too long: then `gaps` says so, and the cursors
    continue. Records of open and aborted transactions are left out.
    """
    question = BrowseQuery(topic, partition, order, offset, time, cursor, limit)
    return MessagesDocument.of(services.browser.browse(question))


@router.get(
    "/groups",
    operation_id="listGroups",
    responses=errors(INVALID_REQUEST, FORBIDDEN, BUSY, UNAVAILABLE),
)
def list_groups(
    services: ServicesDependency,
    name: Containing = "",
    cursor: After = "",
    limit: Annotated[int, Query(ge=1, le=GROUPS_MAX)] = 50,
) -> LogListing[GroupDocument]:
    """List the consumer groups that the service's Kafka user may see, by id."""
    page = services.inspector.groups(after=cursor, containing=name, limit=limit)
    items = [GroupDocument.model_validate(each) for each in page.groups]
    return LogListing[GroupDocument].of(page, items)


@router.get(
    "/group",
    operation_id="getGroup",
    responses=errors(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BUSY, UNAVAILABLE),
)
def get_group(
    services: ServicesDependency,
    # Not in the path: it may contain slashes.
    group_id: Annotated[str, Query(alias="id", description="The group's id.")],
) -> GroupDetailDocument:
    """Get a consumer group: its members, and its committed offset in each partition."""
    return GroupDetailDocument.of(services.inspector.group(group_id))


@router.get("/samples", operation_id="listLogSamples", responses=errors(INVALID_REQUEST, FORBIDDEN))
def list_log_samples(
    services: ServicesDependency,
    kind: Annotated[SeriesKind, Query(description="What `name` names.")] = SeriesKind.TOPIC,
    name: Annotated[
        str, Query(description="The name of a topic, or the id of a group; empty: all of them.")
    ] = "",
    from_ms: Annotated[
        Time | None,
        Query(alias="from", description="Samples since this time; by default the last hour."),
    ] = None,
) -> LogSamplesDocument:
    """List what was written to a topic, or the lag of a consumer group, over time.

    The service samples the log once a minute. Samples of minutes are kept for three hours, those of
    ten minutes as long as the log keeps deliveries. `span` says which ones are listed: minutes if
    `from` lies in the last two hours.
    """
    present_ms = now_ms()
    from_ms = present_ms - HOUR_MS if from_ms is None else from_ms
    span, series = SampleSpan.since(from_ms, present_ms), Series(kind, name)
    # Messages are counted from the sample before.
    first_ms = from_ms - span.width_ms if kind is SeriesKind.TOPIC else from_ms
    samples = services.log_samples.list(series, span, first_ms)
    return LogSamplesDocument.of(series, span, samples, present_ms)
