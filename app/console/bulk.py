"""Many jobs at once: asked first, with their number, then done, and told what came of it."""

from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from app.api.access import account_meant
from app.api.doors import DoorsDependency
from app.console.audit import note_change
from app.console.bulk_orders import Action, Order, read_order
from app.console.bulk_work import REFUSED_SHOWN, carry_out, plan
from app.console.forms import ChangeForm
from app.console.gate import ViewerDependency
from app.console.job_filters import jobs_url
from app.console.notices import did
from app.console.rendering import rendered
from app.domain.states import ReplayState

_DONE: Final = 303
"""The browser is sent on; the audit tells it of a part of an order as well."""

router = APIRouter()


@router.post("/jobs/bulk")
async def ask(
    request: Request, viewer: ViewerDependency, doors: DoorsDependency, form: ChangeForm
) -> Response:
    """Say how many jobs an order is about, and ask whether it is to be carried out."""
    order = read_order(form)
    account_meant(viewer.key, order.wanted.account_id)
    if order.ids == ():
        return RedirectResponse(_back(order, "none-ticked"), _DONE)
    found = await run_in_threadpool(plan, doors.store, order, viewer.key)
    states = [state for state in ReplayState if found.fitting.get(state) or found.others.get(state)]
    return await rendered(
        request, "bulk_confirm.html", plan=found, states=states, back=jobs_url(order.wanted)
    )


@router.post("/jobs/bulk/do", operation_id="changeReplays")
async def do(
    request: Request, viewer: ViewerDependency, doors: DoorsDependency, form: ChangeForm
) -> Response:
    """Carry an order out, or go on with it: as much of it as a request has time for."""
    order = read_order(form)
    account_meant(viewer.key, order.wanted.account_id)
    outcome = await carry_out(doors, order, viewer.key)
    left = outcome.order
    note_change(
        request, viewer.key, order.action.operation, f"{left.done - order.done} replays", _DONE
    )
    if outcome.is_over and not (left.refused and left.action is Action.RETRY):
        return RedirectResponse(_back(left, left.action, left.done, left.refused), _DONE)
    return await rendered(
        request,
        "bulk_outcome.html",
        outcome=outcome,
        order=left,
        shown=outcome.refused[:REFUSED_SHOWN],
        back=jobs_url(left.wanted),
    )


def _back(order: Order, code: str, done: int = 1, refused: int = 0) -> str:
    """The list that the order came from, which tells what was done."""
    url = jobs_url(order.wanted)
    return f"{url}{'&' if '?' in url else '?'}{did(code, done, refused)}"
