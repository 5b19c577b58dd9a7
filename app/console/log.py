"""The log as operators look at it: topics, one topic, groups, one group."""

from typing import Annotated, Final
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import DoorsDependency
from app.console.gate import OperatorDependency
from app.console.rendering import rendered

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
    return await rendered(
        request,
        "log_topics.html",
        page=page,
        containing=containing,
        first=_url(TOPICS, containing=containing) if after else None,
        following=page.next_after and _url(TOPICS, containing=containing, after=page.next_after),
    )


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
        following=detail.next_from and _url(here, start=str(detail.next_from)),
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
    return await rendered(
        request,
        "log_groups.html",
        page=page,
        containing=containing,
        group_url=group_url,
        first=_url(GROUPS, containing=containing) if after else None,
        following=page.next_after and _url(GROUPS, containing=containing, after=page.next_after),
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
    return _url("/console/log/group", id=group_id)


def _url(page: str, **fields: str) -> str:
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"{page}?{query}" if query else page
