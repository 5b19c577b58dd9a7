"""Pages about the log, for operators: topics, consumer groups, processes, pipeline runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.delivery_plots import RangeTab
from app.console.formats import NOTHING, count
from app.console.log_plots import LogPlots, StepPlot, lag_plot, size_plot, written_plot
from app.console.page_requests import OperatorRequest, PageRequest
from app.console.time_ranges import RangeName, TimeRange, parse_range, time_ranges
from app.console.urls import PREFIX, page_url
from app.domain.handovers import HANDS_OVER
from app.domain.log_samples import (
    ALL_GROUPS,
    ALL_TOPICS,
    LogSample,
    SampleSpan,
    Series,
    SeriesKind,
)
from app.domain.pipeline import SUBJECT_CHARS_MAX
from app.domain.processes import STALLED_PARTITIONS, Process
from app.http.dependencies import Cursor
from app.log.errors import LogError
from app.log.inspection import GroupPage, TopicPage
from app.log.inspection.figures import Cluster
from app.log.zookeeper_health import ZooKeeperServer, zookeeper_health
from app.services.services import Services, now_ms

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

router = APIRouter(prefix=PREFIX)

Containing = Annotated[str, Query(max_length=_TOPIC_CHARACTERS_MAX)]
After = Annotated[str, Query(max_length=_GROUP_CHARACTERS_MAX)]
RunField = Annotated[str, Query(max_length=SUBJECT_CHARS_MAX)]


@router.get("/log")
async def topics_page(
    request: OperatorRequest,
    containing: Containing = "",
    after: After = "",
    range_name: RangeName = "",
) -> Response:
    """List topics by name, below plots of all topics and groups."""
    fields = {"containing": containing, "after": after}
    drawn = ((ALL_TOPICS, "all topics", written_plot), (ALL_GROUPS, "all groups", lag_plot))
    plots = await _read_plots(request.services, range_name, page_url(TOPICS, fields), drawn)
    page = await run_in_threadpool(
        request.services.inspector.topics, after=after, containing=containing, limit=TOPICS_SHOWN
    )
    return await _list_page(
        request, "log_topics.html", TOPICS, page, containing, after, plots=plots
    )


@router.get("/log/topics/{name}")
async def topic_page(
    name: str,
    request: OperatorRequest,
    start: Annotated[int, Query(ge=0, le=2**31)] = 0,
    range_name: RangeName = "",
) -> Response:
    """Show a topic with its partitions, and its messages and size over time."""
    here = f"/console/log/topics/{quote(name)}"
    series = Series(SeriesKind.TOPIC, name)
    drawn = ((series, "the topic", written_plot), (series, "the topic", size_plot))
    plots = await _read_plots(request.services, range_name, here, drawn)
    detail = await run_in_threadpool(request.services.inspector.topic, name, start=start)
    return await request.render(
        "log_topic.html",
        detail=detail,
        topic=detail.topic,
        plots=plots,
        first=here if start else None,
        following=detail.next_from and page_url(here, {"start": str(detail.next_from)}),
    )


@router.get("/log/groups")
async def groups_page(
    request: OperatorRequest,
    containing: Containing = "",
    after: After = "",
) -> Response:
    """List consumer groups by id, including those of mirrors."""
    page = await run_in_threadpool(
        request.services.inspector.groups, after=after, containing=containing, limit=GROUPS_SHOWN
    )
    return await _list_page(
        request, "log_groups.html", GROUPS, page, containing, after, group_url=group_url
    )


@router.get("/log/group")
async def group_page(
    request: OperatorRequest,
    group_id: Annotated[str, Query(alias="id", max_length=_GROUP_CHARACTERS_MAX)] = "",
    range_name: RangeName = "",
) -> Response:
    """Show a consumer group: members, lag over time, and lag and owner of each partition."""
    drawn = ((Series(SeriesKind.GROUP, group_id), "the group", lag_plot),)
    plots = await _read_plots(request.services, range_name, group_url(group_id), drawn)
    detail = await run_in_threadpool(request.services.inspector.group, group_id)
    members = {member.member_id: member for member in detail.members}
    return await request.render(
        "log_group.html", detail=detail, group=detail.group, members=members, plots=plots
    )


def group_url(group_id: str) -> str:
    """Return the URL of a group's page. The id may contain any character."""
    return page_url("/console/log/group", {"id": group_id})


_Plotter = Callable[[Iterable[LogSample], SampleSpan, TimeRange, str], StepPlot | None]


async def _read_plots(
    services: Services,
    range_name: str,
    here: str,
    drawn: Sequence[tuple[Series, str, _Plotter]],
) -> LogPlots:
    """Return plots of series, each with its name in words; `here` is the URL of the page.

    Raises:
        Problem: no range has this name.
    """
    present_ms = now_ms()
    ranges = time_ranges(services.settings.history_days, present_ms)
    shown = parse_range(range_name, ranges)
    span = SampleSpan.since(shown.from_ms, present_ms)
    # The sample before the range has the position at its start.
    from_ms = shown.from_ms - span.width_ms

    def read() -> tuple[StepPlot, ...]:
        found = {
            series: services.log_samples.list(series, span, from_ms)
            for series in {series for series, _, _ in drawn}
        }
        plots = (plot(found[series], span, shown, words) for series, words, plot in drawn)
        return tuple(each for each in plots if each is not None)

    separator = "&" if "?" in here else "?"
    tabs = (
        RangeTab(each.words, f"{here}{separator}range={each.name}", each == shown)
        for each in ranges
    )
    return LogPlots(shown, tuple(tabs), await run_in_threadpool(read))


async def _list_page(
    request: PageRequest,
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
    return await request.render(
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
async def processes_page(request: OperatorRequest) -> Response:
    """Show brokers, ZooKeeper and the service's processes, with an error for an unreachable log."""
    overview = await run_in_threadpool(_read_processes, request.services)
    return await request.render(
        "log_processes.html", overview=overview, describe_process=describe_process
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
    request: OperatorRequest,
    job: RunField = "",
    subject: RunField = "",
    cursor: Cursor = None,
) -> Response:
    """Show the last run of each pipeline job, or all runs of one job on one subject."""
    store = request.services.store
    if job and subject:
        page = await run_in_threadpool(store.pipeline_runs, job, subject, cursor or None)
    else:
        page = await run_in_threadpool(
            store.latest_pipeline_runs, job or None, subject or None, cursor or None
        )
    return await request.render(
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
