"""The log as operators look at it: topics, one topic, groups, one group."""

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import DoorsDependency
from app.console.addresses import address
from app.console.gate import OperatorDependency
from app.console.rendering import rendered
from app.log.inspection import GroupPage, TopicPage

TOPICS: Final = "/console/log"
GROUPS: Final = "/console/log/groups"

TOPICS_SHOWN: Final = 100
GROUPS_SHOWN: Final = 50

_NAME_CHARACTERS_MAX: Final = 249
"""Of a topic, in Kafka; a group's id may be longer, and a part of it finds it."""

_GROUP_CHARACTERS_MAX: Final = 1_000

router = APIRouter()

Containing = Annotated[str, Query(max_length=_NAME_CHARACTERS_MAX)]
After = Annotated[str, Query(max_length=_GROUP_CHARACTERS_MAX)]


@router.get("/log")
async def topics_page(
    request: Request,
    doors: DoorsDependency,
    _viewer: OperatorDependency,
    containing: Containing = "",
    after: After = "",
) -> Response:
    """List topics by name."""
    page = await run_in_threadpool(
        doors.inspector.topics, after=after, containing=containing, limit=TOPICS_SHOWN
    )
    return await _listed(request, "log_topics.html", TOPICS, page, containing, after)


@router.get("/log/topics/{name}")
async def topic_page(
    name: str,
    request: Request,
    doors: DoorsDependency,
    _viewer: OperatorDependency,
    start: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> Response:
    """Show a topic with its partitions."""
    detail = await run_in_threadpool(doors.inspector.topic, name, start=start)
    here = f"/console/log/topics/{quote(name)}"
    return await rendered(
        request,
        "log_topic.html",
        detail=detail,
        topic=detail.topic,
        first=here if start else None,
        following=detail.next_from and address(here, {"start": str(detail.next_from)}),
    )


@router.get("/log/groups")
async def groups_page(
    request: Request,
    doors: DoorsDependency,
    _viewer: OperatorDependency,
    containing: Containing = "",
    after: After = "",
) -> Response:
    """List consumer groups by id; mirrors, which read by groups, among them."""
    page = await run_in_threadpool(
        doors.inspector.groups, after=after, containing=containing, limit=GROUPS_SHOWN
    )
    return await _listed(
        request, "log_groups.html", GROUPS, page, containing, after, group_url=group_url
    )


@router.get("/log/group")
async def group_page(
    request: Request,
    doors: DoorsDependency,
    _viewer: OperatorDependency,
    group_id: Annotated[str, Query(alias="id", max_length=_GROUP_CHARACTERS_MAX)] = "",
) -> Response:
    """Show a group: its members, and how far each partition is read, by whom."""
    detail = await run_in_threadpool(doors.inspector.group, group_id)
    members = {member.id: member for member in detail.members}
    return await rendered(
        request, "log_group.html", detail=detail, group=detail.group, members=members
    )


def group_url(group_id: str) -> str:
    """Where a group is shown; its id may hold any character."""
    return address("/console/log/group", {"id": group_id})


async def _listed(
    request: Request,
    template: str,
    here: str,
    page: TopicPage | GroupPage,
    containing: str,
    after: str,
    **context: Any,
) -> Response:
    """A page of a list, with the way to its first page and to the next."""
    fields = {"containing": containing}
    following = page.next_after and address(here, fields | {"after": page.next_after})
    return await rendered(
        request,
        template,
        page=page,
        containing=containing,
        first=address(here, fields) if after else None,
        following=following,
        **context,
    )
