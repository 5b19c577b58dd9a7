"""The route that says which processes are at work."""

from fastapi import APIRouter

from app.api.access import OperatorOnly
from app.api.doors import DoorsDependency
from app.api.models.processes import ProcessDocument, ProcessesDocument
from app.api.openapi import refusals
from app.api.problems import FORBIDDEN

router = APIRouter(tags=["operations"], dependencies=[OperatorOnly])


@router.get("/processes", operation_id="listProcesses", responses=refusals(FORBIDDEN))
def list_processes(doors: DoorsDependency) -> ProcessesDocument:
    """List the processes that share the database, by kind and name.

    One that ended in good order is not among them; one that died is, for a day.
    """
    items = [ProcessDocument.of(process) for process in doors.store.processes()]
    return ProcessesDocument(items=items)
