"""Pages about the log, for operators: topics, consumer groups, processes, pipeline runs."""

from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.formats import NOTHING, count
from app.console.rendering import render_page
from app.console.sessions import OperatorDependency
from app.console.urls import page_url
from app.domain.handovers import HANDS_OVER
from app.domain.pipeline import SUBJECT_CHARS_MAX
from app.domain.processes import STALLED_PARTITIONS, Process
from app.http.dependencies import Cursor, ServicesDependency
from app.log.errors import LogError
from app.log.inspection import GroupPage, TopicPage
from app.log.inspection.figures import Cluster
from app.log.zookeeper_health import ZooKeeperServer, zookeeper_health
from app.services.services import Services

TOPICS: Final = "/console/log"
GROUPS: Final = "/console/log/groups"
PIPELINE: Final = "/console/log/pipeline"

TOPICS_SHOWN: Final = 100
GROUPS_SHOWN: Final = 50

_TOPIC_CHARACTERS_MAX: Final = 249
"""Kafka's limit of topic names. Group ids may be longer; a part of one finds it."""

_GROUP_CHARACTERS_MAX: Final = 1_000

_DETAIL_WORDS: Final = {
    "jobs": "jobs: {}",
    "jobsMax": "max: {}",
    "waitingJobs": "waiting: {}",
    "webhooks": "webhooks: {}",
    "waitingEvents": "events queued: {}",
    STALLED_PARTITIONS: "stalled partitions: {}",
}
"""Words for the details that processes report. Unknown details are shown by name."""

router = APIRouter()

Containing = Annotated[str, Query(max_length=_TOPIC_CHARACTERS_MAX)]
After = Annotated[str, Query(max_length=_GROUP_CHARACTERS_MAX)]
RunField = Annotated[str, Query(max_length=SUBJECT_CHARS_MAX)]


@router.get("/log")
async def topics_page(
    request: Request,
    services: ServicesDependency,
    _viewer: OperatorDependency,
    containing: Containing = "",
    after: After = "",
) -> Response:
    """List topics by name."""
    page = await run_in_threadpool(
        services.inspector.topics, after=after, containing=containing, limit=TOPICS_SHOWN
    )
    return await _list_page(request, "log_topics.html", TOPICS, page, containing, after)


@router.get("/log/topics/{name}")
async def topic_page(
    name: str,
    request: Request,
    services: ServicesDependency,
    _viewer: OperatorDependency,
    start: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> Response:
    """Show a topic with its partitions."""
    detail = await run_in_threadpool(services.inspector.topic, name, start=start)
    here = f"/console/log/topics/{quote(name)}"
    return await render_page(
        request,
        "log_topic.html",
        detail=detail,
        topic=detail.topic,
        first=here if start else None,
        following=detail.next_from and page_url(here, {"start": str(detail.next_from)}),
    )


@router.get("/log/groups")
async def groups_page(
    request: Request,
    services: ServicesDependency,
    _viewer: OperatorDependency,
    containing: Containing = "",
    after: After = "",
) -> Response:
    """List consumer groups by id, including those of mirrors."""
    page = await run_in_threadpool(
        services.inspector.groups, after=after, containing=containing, limit=GROUPS_SHOWN
    )
    return await _list_page(
        request, "log_groups.html", GROUPS, page, containing, after, group_url=group_url
    )


@router.get("/log/group")
async def group_page(
    request: Request,
    services: ServicesDependency,
    _viewer: OperatorDependency,
    group_id: Annotated[str, Query(alias="id", max_length=_GROUP_CHARACTERS_MAX)] = "",
) -> Response:
    """Show a consumer group: its members, and the lag and owner of each partition."""
    detail = await run_in_threadpool(services.inspector.group, group_id)
    members = {member.member_id: member for member in detail.members}
    return await render_page(
        request, "log_group.html", detail=detail, group=detail.group, members=members
    )


def group_url(group_id: str) -> str:
    """Return the URL of a group's page. The id may contain any character."""
    return page_url("/console/log/group", {"id": group_id})


async def _list_page(
    request: Request,
    template: str,
    here: str,
    page: TopicPage | GroupPage,
    containing: str,
    after: str,
    **context: Any,
) -> Response:
    """Return a page of a list, with links to its first and next page."""
    fields = {"containing": containing}
    following = page.next_after and page_url(here, fields | {"after": page.next_after})
    return await render_page(
        request,
        template,
        page=page,
        containing=containing,
        first=page_url(here, fields) if after else None,
        following=following,
        **context,
    )


@dataclass(frozen=True, slots=True)
class _ProcessOverview:
    """Everything on the page of processes. `log_error` is why the log's part is missing."""

    cluster: Cluster | None
    mirrors: GroupPage | None
    log_error: str | None
    zookeeper: tuple[ZooKeeperServer, ...]
    processes: tuple[Process, ...]


@router.get("/log/processes")
async def processes_page(
    request: Request, services: ServicesDependency, _viewer: OperatorDependency
) -> Response:
    """Show brokers, ZooKeeper and the service's processes, with an error for an unreachable log."""
    overview = await run_in_threadpool(_read_processes, services)
    return await render_page(
        request, "log_processes.html", overview=overview, describe_process=describe_process
    )


def describe_process(process: Process) -> str:
    """Return the details that a process reports, in words."""
    details = dict(process.details)
    details.pop(HANDS_OVER, None)
    words = [] if details.pop("ready", 1) else ["waiting for partitions"]
    words += [
        _DETAIL_WORDS.get(name, name + ": {}").format(count(number))
        for name, number in details.items()
    ]
    return ", ".join(words) or NOTHING


def _read_processes(services: Services) -> _ProcessOverview:
    cluster = mirrors = log_error = None
    try:
        cluster = services.inspector.cluster()
        mirrors = services.inspector.mirrors()
    except LogError as error:
        log_error = str(error)
    zookeeper = zookeeper_health(services.settings.zookeeper)
    return _ProcessOverview(cluster, mirrors, log_error, zookeeper, services.store.processes())


@router.get("/log/pipeline")
async def pipeline_page(
    request: Request,
    services: ServicesDependency,
    _viewer: OperatorDependency,
    job: RunField = "",
    subject: RunField = "",
    cursor: Cursor = None,
) -> Response:
    """Show the last run of each pipeline job, or all runs of one job on one subject."""
    if job and subject:
        page = await run_in_threadpool(services.store.pipeline_runs, job, subject, cursor or None)
    else:
        page = await run_in_threadpool(
            services.store.latest_pipeline_runs, job or None, subject or None, cursor or None
        )
    return await render_page(
        request,
        "log_pipeline.html",
        runs=page.items,
        is_history=bool(job and subject),
        job=job,
        subject=subject,
        runs_url=_runs_url,
        following=page.next_cursor and _runs_url(job, subject, page.next_cursor),
    )


def _runs_url(job: str, subject: str, cursor: str = "") -> str:
    return page_url(PIPELINE, {"job": job, "subject": subject, "cursor": cursor})
