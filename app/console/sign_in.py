"""The sign-in page, and signing out."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from app.console.audit import log_change
from app.console.forms import read_form
from app.console.rendering import render_page
from app.console.sessions import ViewerDependency, check_form
from app.console.urls import DELIVERIES, PREFIX

NEXT_CHARACTERS_MAX: Final = 2_000

router = APIRouter(prefix=PREFIX)

Next = Annotated[str, Query(alias="next", max_length=NEXT_CHARACTERS_MAX)]


@router.get("")
def start_page() -> Response:
    """Redirect to the deliveries."""
    return RedirectResponse(DELIVERIES, 303)


@router.get("/sign-in")
async def sign_in_page(request: Request, next_page: Next = "") -> Response:
    """Show the form for an API key."""
    return await render_page(request, "sign_in.html", next_page=next_page)


@router.post("/sign-in")
async def sign_in(request: Request) -> Response:
    """Open a session for an API key, and redirect to the page requested before."""
    form = await read_form(request)
    response = RedirectResponse(_own_page(form["next"]), 303)
    key = await request.app.state.sessions.sign_in(request, form["key"], response)
    if key is None:
        return await render_page(
            request, "sign_in.html", 401, next_page=form["next"], is_rejected=True
        )
    log_change(request, key, response.status_code, key.id, "signIn")
    return response


@router.post("/sign-out")
async def sign_out(request: Request, viewer: ViewerDependency) -> Response:
    """End the session. Read-only keys may do so too."""
    form = await read_form(request)
    check_form(request, viewer, form["csrf"])
    response = RedirectResponse("/console/sign-in", 303)
    await request.app.state.sessions.sign_out(request, response)
    log_change(request, viewer.key, response.status_code, viewer.key.id, "signOut")
    return response


def _own_page(page: str) -> str:
    """Return `page`, or the start page if it is not a URL of the console: links can be forged."""
    is_own = page.startswith("/console/") and "\\" not in page and page.isprintable()
    return page if is_own and len(page) <= NEXT_CHARACTERS_MAX else DELIVERIES
