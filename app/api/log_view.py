"""Routes that show operators the log: brokers, topics, groups and messages."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from app.api.access import OperatorOnly
from app.api.doors import DoorsDependency
from app.api.models.documents import Time
from app.api.models.log import (
    ClusterDocument,
    GroupDetailDocument,
    GroupDocument,
    LogListing,
    MessagesDocument,
    TopicDetailDocument,
    TopicDocument,
)
from app.api.openapi import refusals
from app.api.problems import BUSY, FORBIDDEN, INVALID_REQUEST, NOT_FOUND, UNAVAILABLE
from app.log.browser import MESSAGES_MAX, BrowseQuestion, Order
from app.log.inspection.inspector import GROUPS_MAX, TOPICS_MAX

PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1

router = APIRouter(prefix="/log", tags=["log"], dependencies=[OperatorOnly])

# As long as a URL may be: a group's id has no bound of its own.
After = Annotated[str, Query(alias="cursor", description="The `nextCursor` of the page before.")]
Containing = Annotated[
    str, Query(alias="name", max_length=249, description="Those alone that have it in their name.")
]


@router.get(
    "/brokers",
    operation_id="listBrokers",
    responses=refusals(FORBIDDEN, BUSY, UNAVAILABLE),
)
async def list_brokers(doors: DoorsDependency) -> ClusterDocument:
    """List the brokers that live, and how the ZooKeeper is that the service was told of."""
    cluster = await run_in_threadpool(doors.inspector.cluster)
    return ClusterDocument.of(cluster, await doors.ensemble.read())


@router.get(
    "/topics",
    operation_id="listTopics",
    responses=refusals(INVALID_REQUEST, FORBIDDEN, BUSY, UNAVAILABLE),
)
def list_topics(
    doors: DoorsDependency,
    name: Containing = "",
    cursor: After = "",
    limit: Annotated[int, Query(ge=1, le=TOPICS_MAX)] = 100,
) -> LogListing[TopicDocument]:
    """List the topics that the service's user may see, by name.

    A figure that brokers do not tell, or not to this user, is null, and `gaps` says why.
    """
    page = doors.inspector.topics(after=cursor, containing=name, limit=limit)
    items = [TopicDocument.model_validate(each) for each in page.topics]
    return LogListing[TopicDocument].of(page, items)


@router.get(
    "/topics/{topic}",
    operation_id="getTopic",
    responses=refusals(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BUSY, UNAVAILABLE),
)
def get_topic(
    topic: str,
    doors: DoorsDependency,
    start: Annotated[
        int, Query(ge=0, le=PARTITION_MAX, description="The first partition to be told.")
    ] = 0,
) -> TopicDetailDocument:
    """Look a topic up, with up to a thousand partitions."""
    return TopicDetailDocument.of(doors.inspector.topic(topic, start=start))


@router.get(
    "/topics/{topic}/messages",
    operation_id="listMessages",
    responses=refusals(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BUSY, UNAVAILABLE),
)
def list_messages(
    topic: str,
    doors: DoorsDependency,
    partition: Annotated[
        int | None, Query(ge=0, le=PARTITION_MAX, description="Of this one alone.")
    ] = None,
    order: Annotated[Order, Query(description="Which of the page stands first.")] = Order.NEWEST,
    offset: Annotated[
        int | None,
        Query(ge=0, le=OFFSET_MAX, description="The first of the page; with `partition` alone."),
    ] = None,
    time: Annotated[
        Time | None,
        Query(description="With the oldest first, those from then on; else those before."),
    ] = None,
    cursor: Annotated[
        str | None, Query(description="Of the page behind or before another.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MESSAGES_MAX)] = MESSAGES_MAX,
) -> MessagesDocument:
    """Look through the messages of a topic; those of several partitions are merged by their times.

    Without a place, a page has the newest, or with `order` the oldest there are. It is shorter
    than its limit where the log ends, and where it would take too long: then `gaps` says so, and
    the cursors lead on. What no committed transaction wrote is left out.
    """
    question = BrowseQuestion(topic, partition, order, offset, time, cursor, limit)
    return MessagesDocument.of(doors.browser.browse(question))


@router.get(
    "/groups",
    operation_id="listGroups",
    responses=refusals(INVALID_REQUEST, FORBIDDEN, BUSY, UNAVAILABLE),
)
def list_groups(
    doors: DoorsDependency,
    name: Containing = "",
    cursor: After = "",
    limit: Annotated[int, Query(ge=1, le=GROUPS_MAX)] = 50,
) -> LogListing[GroupDocument]:
    """List the consumer groups that the service's user may see, by id."""
    page = doors.inspector.groups(after=cursor, containing=name, limit=limit)
    items = [GroupDocument.model_validate(each) for each in page.groups]
    return LogListing[GroupDocument].of(page, items)


@router.get(
    "/group",
    operation_id="getGroup",
    responses=refusals(INVALID_REQUEST, FORBIDDEN, NOT_FOUND, BUSY, UNAVAILABLE),
)
def get_group(
    doors: DoorsDependency,
    # Not of the path: it may have slashes.
    group_id: Annotated[str, Query(alias="id", description="The group's, whatever it is.")],
) -> GroupDetailDocument:
    """Look a consumer group up: its members, and how far it is in each partition."""
    return GroupDetailDocument.of(doors.inspector.group(group_id))
