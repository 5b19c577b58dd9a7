"""Who is at work: brokers, ZooKeeper, and the processes of the service with their heartbeats."""

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.api.doors import Doors, DoorsDependency
from app.console.formats import NOTHING, count
from app.console.gate import OperatorDependency
from app.console.rendering import rendered
from app.domain.processes import Process
from app.log.errors import LogError
from app.log.inspection.figures import Cluster, GroupPage
from app.log.zookeeper_health import ZooKeeperServer, zookeeper_health

_WORDS: Final = {
    "jobs": "jobs: {}",
    "jobsMax": "at most: {}",
    "webhooks": "webhooks: {}",
    "waitingEvents": "events that wait: {}",
}
"""What processes tell of themselves; of names that are new here, the number stands by the name."""

router = APIRouter()


@dataclass(frozen=True, slots=True)
class _Found:
    """What there is to show; `log_error` says why the log's part is missing."""

    cluster: Cluster | None
    mirrors: GroupPage | None
    log_error: str | None
    zookeeper: tuple[ZooKeeperServer, ...]
    processes: tuple[Process, ...]


@router.get("/log/processes")
async def processes_page(
    request: Request, doors: DoorsDependency, _viewer: OperatorDependency
) -> Response:
    """Show who is at work; what does not answer is told, and the rest shown."""
    found = await run_in_threadpool(_look, doors)
    return await rendered(request, "log_processes.html", found=found, in_words=in_words)


def in_words(process: Process) -> str:
    """What a process has to do, as its own numbers tell."""
    details = dict(process.details)
    told = [] if details.pop("ready", 1) else ["waits for its share of the partitions"]
    told += [
        _WORDS.get(name, name + ": {}").format(count(number)) for name, number in details.items()
    ]
    return ", ".join(told) or NOTHING


def _look(doors: Doors) -> _Found:
    cluster = mirrors = log_error = None
    try:
        cluster = doors.inspector.cluster()
        mirrors = doors.inspector.mirrors()
    except LogError as error:
        log_error = str(error)
    zookeeper = zookeeper_health(doors.settings.zookeeper)
    return _Found(cluster, mirrors, log_error, zookeeper, doors.store.processes())
